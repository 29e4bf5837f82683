"""Small pieces of Fetch: which partitions are asked for, and answers without records."""

from collections.abc import Callable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.replication.limits import Limits
from penstock.wire.kafka.fetch import FetchPartition, PartitionAnswer

NO_REPLICA = -1
# In place of the epoch where histories part: they have nothing in common.
NO_EPOCH = -1


def empty(
    one: FetchPartition,
    limits: Limits,
    log_start: int,
    aborted: list[tuple[int, int]] | None,
    *,
    diverging: tuple[int, int] | None = None,
    preferred_replica: int = NO_REPLICA,
) -> PartitionAnswer:
    """No error and no records."""
    return PartitionAnswer(
        one.partition,
        0,
        limits.readable.offset,
        limits.stable.offset,
        log_start,
        None,
        0,
        aborted,
        preferred_replica,
        diverging,
    )


def distinct(topics: list[tuple[bytes, list[FetchPartition]]]) -> list[tuple[bytes, list[FetchPartition]]]:
    """Each topic and partition once: of a partition named twice, the last counts, as in Kafka."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return topics
    merged: dict[bytes, dict[int, FetchPartition]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update((one.partition, one) for one in partitions)
    return [(topic, list(partitions.values())) for topic, partitions in merged.items()]


def warm_all(cold: list[Callable[[], object]]) -> None:
    """Read all that can be read; StorageError when some of it cannot."""
    failure: StorageError | None = None
    for warm in cold:
        try:
            warm()
        except StorageError as error:
            failure = error
    if failure is not None:
        raise failure


def begin_anew(one: FetchPartition, log_start: int, tombstones: int) -> PartitionAnswer:
    """To a follower whose log is of no use: ours begins at `log_start`, and may lack tombstones below `tombstones`.

    It stands in place of the high watermark, which says nothing about a log that is to be empty.
    """
    diverging = NO_EPOCH, log_start
    return PartitionAnswer(one.partition, 0, tombstones, tombstones, log_start, None, diverging=diverging)


def out_of_range(one: FetchPartition, limits: Limits, log_start: int) -> PartitionAnswer:
    """To a follower, which is also told where to begin anew."""
    code, high_watermark, stable = ErrorCode.OFFSET_OUT_OF_RANGE, limits.readable.offset, limits.stable.offset
    return PartitionAnswer(one.partition, code, high_watermark, stable, log_start, None)
