"""What can go wrong below every client library, each with what to do next.

`retriable` errors are what the client tries again by itself; a caller sees one of them only as the cause of a
`TimedOutError`, when trying has not helped within the time the options give.
"""

import uuid
from collections.abc import Iterable

from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError


class RawError(PenstockError):
    """Root of this package's errors."""

    retriable = False


class OptionError(RawError):
    """A client setting that is unknown, malformed, or asks for what this client cannot do."""


class ConnectionLostError(RawError):
    """A broker could not be reached, went away, fell silent or sent nonsense."""

    retriable = True


class TimedOutError(RawError):
    """Tried again until there was no time left; the cause says what went wrong the last time."""


class UnreachableError(TimedOutError):
    """No broker answered in all the time there was."""


class UnsupportedError(RawError):
    """The broker is too old, or keeps its records in a format from before Kafka 0.11."""


class UnknownTopicError(RawError):
    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        listed = ", ".join(self.names)
        super().__init__(
            f"there is no topic {listed}: see `penstock topic list`, or make it with `penstock topic create`"
        )


class TopicRecreatedError(UnknownTopicError):
    """The topic of that name is another one than before: offsets of the old one mean nothing in it."""

    def __init__(self, name: str, expected: uuid.UUID | None, found: uuid.UUID | None) -> None:
        super().__init__((name,))
        self.expected = expected
        self.found = found
        message = f"topic {name} was deleted and made anew (its id is {found}, not {expected})"
        self.args = (f"{message}: start again from the beginning of the new one",)


class UnknownPartitionError(RawError):
    def __init__(self, at: TopicPartition, partitions: tuple[int, ...]) -> None:
        self.at = at
        known = f"0 to {partitions[-1]}" if partitions else "none"
        super().__init__(f"topic {at.topic} has no partition {at.partition}, only {known}: name one it has")


class OffsetOutOfRangeError(RawError):
    """`log_start` and `end` are what the partition has now."""

    def __init__(self, at: TopicPartition, offset: int, log_start: int, end: int) -> None:
        self.at = at
        self.offset = offset
        self.log_start = log_start
        self.end = end
        why = "retention has removed it" if offset < log_start else "it is not written yet, or was cut off"
        super().__init__(
            f"{at} has no offset {offset}, it holds {log_start} to {end} ({why}): start from an offset it holds"
        )


class CorruptDataError(RawError):
    """The broker cannot read the records at this offset, or what it sent is no record batch."""

    def __init__(self, at: TopicPartition, offset: int, why: str) -> None:
        self.at = at
        self.offset = offset
        super().__init__(
            f"{at} is damaged at offset {offset} ({why}): see the broker's log, and read past it from a later offset"
        )


class BatchError(RawError):
    """What was given to a producer is not one whole, undamaged batch of plain records."""

    def __init__(self, at: TopicPartition, why: str) -> None:
        self.at = at
        super().__init__(f"a batch for {at} cannot be sent: {why}")


class BrokerError(RawError):
    """A broker refused, with Kafka's error code."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        self.code = code
        try:
            known = ErrorCode(code)
            name, self.retriable = known.name, known.retriable
        except ValueError:
            name, self.retriable = f"error {code}", False
        said = f": {message}" if message else ""
        advice = _ADVICE.get(code)
        super().__init__(f"{subject}: the broker says {name}{said}" + (f"; {advice}" if advice else ""))


class ProduceError(BrokerError):
    """A batch that was refused for good. Those before it are stored; nothing is known of those behind it."""

    def __init__(self, code: int, at: TopicPartition, message: str | None = None) -> None:
        super().__init__(code, str(at), message)
        self.at = at


_ADVICE: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask who runs the broker for the right to this topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask who runs the broker",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches, or raise the topic's segment.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249 of them",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is 0, 1 or all",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression.type",
    ErrorCode.INVALID_TIMESTAMP: "see the topic's message.timestamp.before.max.ms and after.max.ms",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the partition lost records or another wrote under this producer id; "
    "check what is stored before sending again",
    ErrorCode.INVALID_TXN_STATE: "it is not open there any more, or its coordinator will end it: "
    "see `penstock txn list`",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "characters, `.`, classes, groups, `|` and `* + ?` are understood",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker forgot this producer; check what is stored before sending again",
}
