"""Small pieces of Fetch: which partitions are asked for, and answers without records."""

from collections.abc import Callable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.replication.partition import Partition
from penstock.storage.segment import Slice
from penstock.wire.kafka.fetch import FetchPartition, PartitionAnswer

NO_REPLICA = -1
# In place of the epoch where histories part: they have nothing in common.
NO_EPOCH = -1


def empty(
    one: FetchPartition,
    partition: Partition,
    aborted: list[tuple[int, int]] | None,
    *,
    diverging: tuple[int, int] | None = None,
    preferred_replica: int = NO_REPLICA,
) -> PartitionAnswer:
    """No error and no records."""
    limits = partition.limits
    return PartitionAnswer(
        one.partition,
        0,
        limits.readable.offset,
        limits.stable.offset,
        partition.log.start_offset,
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
        merged.setdefault(topic, {}).update((partition.partition, partition) for partition in partitions)
    return [(topic, list(partitions.values())) for topic, partitions in merged.items()]


class Copied(bytes):
    """Records as their bytes, in place of where they are."""

    @property
    def size(self) -> int:
        return len(self)


def copied(answer: PartitionAnswer) -> PartitionAnswer:
    """The same without a hold on the file; it may be gone."""
    assert isinstance(answer.records, Slice)
    file, position, size = answer.records
    try:
        data = Copied(file.pread(size, position))
        if len(data) == size:
            return answer._replace(records=data)
    except StorageError:
        pass
    return PartitionAnswer(answer.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None)


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


def begin_anew(partition: FetchPartition, log_start: int, tombstones: int) -> PartitionAnswer:
    """To a follower whose log is of no use: ours begins at `log_start`, and may lack tombstones below `tombstones`.

    It stands in place of the high watermark, which says nothing about a log that is to be empty.
    """
    diverging = NO_EPOCH, log_start
    return PartitionAnswer(
        partition.partition, 0, tombstones, tombstones, log_start, None, diverging=diverging
    )


def out_of_range(one: FetchPartition, partition: Partition) -> PartitionAnswer:
    """To a follower, which is also told where to begin anew."""
    return empty(one, partition, None)._replace(error=ErrorCode.OFFSET_OUT_OF_RANGE)


def parted(
    one: FetchPartition, partition: Partition, aborted: list[tuple[int, int]] | None
) -> PartitionAnswer | None:
    """To a reader that has left our history: where that was. None: it has not. ApiError: it never was in it."""
    diverging = partition.diverging(one.last_fetched_epoch, one.offset)
    if diverging is None:
        return None
    if diverging[0] < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)  # an epoch we never had
    return empty(one, partition, aborted, diverging=diverging)


def negative_size() -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative limit of bytes")
