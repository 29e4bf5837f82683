"""librdkafka's errors in words that say what to do; everything above sees `ClientError` alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from penstock.core.errors import PenstockError


class ClientError(PenstockError):
    """A broker refused, or could not be asked; the message says what to do next."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code  # Kafka's error code, or librdkafka's own (negative)


class UnreachableError(ClientError):
    """Nobody answers at the bootstrap address."""


class ClosedError(ClientError):
    """A producer or consumer that was closed, and is asked for something."""


def unreachable(bootstrap: str) -> UnreachableError:
    return UnreachableError(
        f"nothing answers at {bootstrap}: start a broker with `penstock up`, or give the bootstrap address of one that "
        "runs"
    )


# What each code means for `subject` (mostly a topic's name). The broker's own words follow where they add something.
_WORDS: dict[int, Callable[[str], str]] = {
    KafkaError._UNKNOWN_PARTITION: lambda it: (  # noqa: SLF001
        f"{it} has no such partition: `penstock topic describe {it}` shows which it has"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: lambda it: (
        f"there is no topic {it}: see `penstock topic list`, or make it with `penstock topic create {it}`"
    ),
    KafkaError.TOPIC_ALREADY_EXISTS: lambda it: (
        f"topic {it} exists already: choose another name, or change it with `penstock topic alter {it}`"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: lambda it: (
        f"a message is too large for {it}: raise it with `penstock topic alter {it} --config "
        "max.message.bytes=BYTES`, or send smaller ones"
    ),
    KafkaError.NOT_ENOUGH_REPLICAS: lambda it: (
        f"fewer replicas of {it} are in sync than min.insync.replicas asks for: bring brokers back, or lower it"
    ),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: lambda it: (
        f"{it} was written, but by fewer replicas than min.insync.replicas asks for: bring brokers back"
    ),
    KafkaError.OFFSET_OUT_OF_RANGE: lambda it: (
        f"{it} has no such offset: `penstock topic describe {it}` shows which it has"
    ),
    KafkaError.UNSUPPORTED_VERSION: lambda _: (
        "the broker does not know this request: is it older than this client?"
    ),
    KafkaError._UNSUPPORTED_FEATURE: lambda _: (  # noqa: SLF001
        "the broker does not know this request: is it older than this client?"
    ),
    KafkaError._MSG_TIMED_OUT: lambda it: (  # noqa: SLF001
        f"a message to {it} was not acknowledged in time: see that the broker runs (`penstock doctor`), try again"
    ),
}

# Codes whose text from the broker already says everything, and what to do about them.
_ADVICE: dict[int, str] = {
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249 of them",
    KafkaError.INVALID_PARTITIONS: "a topic has one at least, and never fewer than before unless they are retired",
    KafkaError.INVALID_REPLICATION_FACTOR: "no more replicas than brokers",
    KafkaError.INVALID_CONFIG: "docs/configuration.md lists every setting of a topic",
    KafkaError.POLICY_VIOLATION: "ask who runs the broker",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "give all members the same partition.assignment.strategy, in config",
}

_GONE = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}


def explained(error: KafkaError | KafkaException, *, bootstrap: str, subject: str) -> ClientError:
    """One line for a librdkafka error; `subject` is the topic or whatever was asked about."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code = cause.code()
    if code in _GONE:
        return unreachable(bootstrap)
    if code in _WORDS:
        return ClientError(_WORDS[code](subject), code)
    text = cause.str() or cause.name()
    advice = _ADVICE.get(code)
    return ClientError(f"{subject}: {text.rstrip('.')}" + (f"; {advice}" if advice else ""), code)


def is_fatal(error: BaseException) -> bool:
    """Whether a librdkafka client is of no use any more: another one must be made."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return isinstance(cause, KafkaError) and cause.fatal()


@contextmanager
def kafka_errors(bootstrap: str, subject: str) -> Iterator[None]:
    """What librdkafka raises inside becomes a `ClientError`.

    A signal that arrives while one of its callbacks runs is lost with its exception: the call then fails without
    one, which Python calls a SystemError (confluent-kafka-python issue 1708). It was an interruption, and is again.
    """
    try:
        yield
    except KafkaException as error:
        raise explained(error, bootstrap=bootstrap, subject=subject) from error
    except RuntimeError as error:
        if not str(error).endswith("closed"):  # librdkafka's "Consumer closed", "Handle has been closed"
            raise
        raise ClosedError("this client is closed: make another one") from error
    except SystemError as error:
        if "without setting an exception" in str(error):
            raise KeyboardInterrupt from error
        raise
