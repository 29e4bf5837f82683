"""Which of librdkafka's errors a consumer need not tell anybody."""

from confluent_kafka import KafkaError

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
