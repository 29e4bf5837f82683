"""Errors of a consumer: which of librdkafka's nobody need be told, and one that has to wait for the next step."""

from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import ClientError, explained

# What librdkafka mends by itself; it says so and goes on.
PASSING = {
    KafkaError._PARTITION_EOF,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - the partitions are lost, and will be assigned again
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
# A commit that came too late: the partition is another member's now, or will be in a moment.
NOT_OURS = {
    KafkaError._NO_OFFSET,  # noqa: SLF001
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
}
# A commit for a partition that is not there (any more). The group hears of a deletion with one of its next polls.
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}


class Failure:
    """What went wrong where nobody could be told, as in a callback: the next step of the loop says so."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._error: ClientError | None = None

    def note(self, error: KafkaException | ClientError, subject: str = "") -> None:
        """The first one counts."""
        if isinstance(error, KafkaException):
            error = explained(error, bootstrap=self._bootstrap, subject=subject)
        self._error = self._error or error

    def tell(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
