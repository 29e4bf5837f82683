"""What a reader asks for, and what it is told of a partition: in the words of none of those who ask."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.replication.partition import Partition
from penstock.storage.segment import Slice

NO_REPLICA = -1
# In place of the epoch where histories part: they have nothing in common.
NO_EPOCH = -1


class Place(Protocol):
    """Where somebody wants to read on in a partition. Epochs are those that it knows; -1 where it knows none."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int:
        """Of a follower, its own."""
        ...


class Terms(Protocol):
    """How much somebody wants to read of all its partitions together, and how long it waits for that."""

    @property
    def max_wait_ms(self) -> int: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...


class Found(NamedTuple):
    """What there is at a place. Where it is refused, offsets are -1."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: "Slice | Copied | None"  # whole batches; None: none
    size: int = 0
    aborted: list[tuple[int, int]] | None = None  # (producer id, first offset)
    preferred_replica: int = NO_REPLICA
    diverging: tuple[int, int] | None = None  # where the reader has left our history: (epoch, end offset)


# By topic, named as whoever asks names it: by name or by id.
Wanted = Sequence[tuple[bytes, Sequence[Place]]]
FoundInTopic = tuple[bytes, list[Found]]


def empty(
    place: Place,
    partition: Partition,
    aborted: list[tuple[int, int]] | None,
    *,
    diverging: tuple[int, int] | None = None,
    preferred_replica: int = NO_REPLICA,
) -> Found:
    """No error and no records."""
    limits = partition.limits
    return Found(
        place.partition,
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


class Copied(bytes):
    """Records as their bytes, in place of where they are."""

    @property
    def size(self) -> int:
        return len(self)


def copied(found: Found) -> Found:
    """The same without a hold on the file; it may be gone."""
    assert isinstance(found.records, Slice)
    file, position, size = found.records
    try:
        data = Copied(file.pread(size, position))
        if len(data) == size:
            return found._replace(records=data)
    except StorageError:
        pass
    return unreadable(found.partition)


def unreadable(partition: int) -> Found:
    return Found(partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None)


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


def begin_anew(place: Place, log_start: int, tombstones: int) -> Found:
    """To a follower whose log is of no use: ours begins at `log_start`, and may lack tombstones below `tombstones`.

    It stands in place of the high watermark, which says nothing about a log that is to be empty.
    """
    diverging = NO_EPOCH, log_start
    return Found(place.partition, 0, tombstones, tombstones, log_start, None, diverging=diverging)


def out_of_range(place: Place, partition: Partition) -> Found:
    """To a follower, which is also told where to begin anew."""
    return empty(place, partition, None)._replace(error=ErrorCode.OFFSET_OUT_OF_RANGE)


def parted(place: Place, partition: Partition, aborted: list[tuple[int, int]] | None) -> Found | None:
    """To a reader that has left our history: where that was. None: it has not. ApiError: it never was in it."""
    diverging = partition.diverging(place.last_fetched_epoch, place.offset)
    if diverging is None:
        return None
    if diverging[0] < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)  # an epoch we never had
    return empty(place, partition, aborted, diverging=diverging)


def negative_size() -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative limit of bytes")
