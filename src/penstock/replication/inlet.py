"""A retired partition: readers keep what they had, writers are served as ever, and what they write is moved elsewhere.

    0 ............ limit ............ moved ........ committed ........ end
    readable, as     hidden from readers: in the     hidden, and still
    it always was    target's log as well            to be moved

The limit is chosen once, by the leader, and stands in the metadata from then on (ADR 11). A leader that has answered
the controller shows no more than that at once, and goes back to showing everything only if it is elected again without
any limit written down: then its answer came to nothing.

A partition becomes an inlet in place, by its class: others hold on to the object, and those that were never retired pay
nothing for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import BatchHeader, read_header
from penstock.records.relay import filler_batch
from penstock.replication.partition import Partition
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.storage.replicated import end_at, find_end
from penstock.storage.segment import Slice

# How far records are moved is the target's to tell.
UNKNOWN = -1

_PLENTY = 0x7FFFFFFF
_FILLED_MAX = 1 << 31  # offsets that one batch can take


def _nobody() -> None:
    pass


class Close(Enum):
    """What the target has is asked for once more before the partition may go, and with it the only other copy."""

    NOT_ASKED = 0
    ASKED = 1
    CONFIRMED = 2


@dataclass(slots=True)
class Retirement:
    limit: int
    # The leader epoch under which it was chosen, until the metadata says so too.
    epoch: int | None
    written_ms: int
    moved: int = UNKNOWN  # everything below it is committed in the target, since this leader asked for it
    close: Close = Close.NOT_ASKED
    closed: bool = False  # nobody may write any more: it is about to be removed
    advanced: Callable[[], None] = _nobody  # there is more to move
    end: LogEnd | None = None  # the limit as a place in the log, where that is known


class Inlet(Partition):
    __slots__ = ()

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, hold: bool = False
    ) -> tuple[int, int]:
        retirement = retirement_of(self)
        if retirement.closed:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {self.index} was retired: refresh the metadata and write to another",
            )
        retirement.written_ms = now_ms
        retirement.close = Close.NOT_ASKED
        if self.log.end_offset < retirement.limit:
            _fill(self, now_ms)
        return super().append(batch, header, now_ms, hold=hold)

    def append_relayed(self, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        if self.log.end_offset < retirement_of(self).limit:
            _fill(self, now_ms)
        return super().append_relayed(batch, header, now_ms)

    def note_committed(self, end: LogEnd) -> None:
        self.committed = end
        retirement = retirement_of(self)
        if end.offset <= retirement.limit:
            retirement.end = end if end.offset == retirement.limit else None
            self.readable = end
        else:
            if retirement.end is None:
                retirement.end = find_end(self.log, retirement.limit)
            # Where that cannot be read just now, readers stay where they are.
            self.readable = retirement.end or self.readable

    def replace_log(self, log: Log) -> None:
        retirement = retirement_of(self)
        retirement.end = end_at(log, retirement.limit)  # first, as there
        super().replace_log(log)

    def _commit(self, end: LogEnd) -> None:
        before = self.readable.offset
        self.note_committed(end)
        waiters = self._ack_waiters
        while waiters and waiters[0][0] < end.offset:
            waiters.popleft()[1].committed()
        if self.readable.offset > before:
            for waiter in list(self.data_waiters):
                waiter.advanced(_PLENTY)
        retirement_of(self).advanced()

    def read(self, offset: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        limit = retirement_of(self).limit
        if self.in_gap(offset):
            offset = self.log.start_offset
        if offset > limit or offset < min(self.log.start_offset, limit):
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.log.read(offset, size_max, self.readable, at_least_one=at_least_one)


def _fill(partition: Partition, now_ms: int) -> None:
    """The log lost its end, below the limit: whatever comes next is to be moved, so it begins at the limit.

    Written where the log ends, a batch could lie on both sides of it. What fills the gap is a control record: readers
    skip it, followers and recovery know no gaps where nothing compacts.
    """
    log, limit = partition.log, retirement_of(partition).limit
    was_empty = log.start_offset == log.end_offset
    while log.end_offset < limit:
        batch = filler_batch(min(limit - log.end_offset, _FILLED_MAX))
        log.append(memoryview(batch), read_header(batch), partition.leader_epoch, now_ms)
    if was_empty:
        log.advance_start(limit)  # readers have nothing left
    seal(partition)


def retirement_of(partition: Partition) -> Retirement:
    """Of one that is an inlet."""
    assert partition.retirement is not None
    return partition.retirement


def find_limit(partition: Partition) -> None:
    """Segments were exchanged: the limit, where there is one, may lie elsewhere now."""
    if partition.retirement is None:
        return
    try:
        partition.retirement.end = end_at(partition.log, partition.retirement.limit)
    except StorageError as error:
        partition.sync_failed(str(error))  # found when the log is opened again
    partition.note_committed(partition.committed)


def is_retired(partition: Partition) -> bool:
    """Also in the metadata: nothing takes it back."""
    return partition.retirement is not None and partition.retirement.epoch is None


def retire(partition: Partition, limit: int, epoch: int | None, written_ms: int) -> None:
    """Show no more than what lies below `limit`; without an epoch for good, because the metadata says so."""
    known = partition.retirement
    if known is not None and known.limit == limit:
        known.epoch = epoch
        return
    committed = partition.committed
    # First: this reads, and where that fails nothing has changed yet.
    end = end_at(partition.log, limit) if committed.offset > limit else None
    partition.retirement = Retirement(limit, epoch, written_ms, end=end)
    partition.__class__ = Inlet
    partition.note_committed(committed)


def freeze(partition: Partition, now_ms: int) -> int:
    """For the controller, which is about to write it down: where this leader's readers stop, from now on.

    Everything below is committed, so no fail-over takes it back; and no reader of any leader has seen more, since all
    that was in the log when this epoch began is committed too.
    """
    known = partition.retirement
    if known is not None:
        return known.limit
    if not partition.knows_its_end:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "not all of what the last leader had is committed yet")
    limit = partition.committed.offset
    retire(partition, limit, partition.leader_epoch, now_ms)
    seal(partition)
    return limit


def lead_anew(partition: Partition) -> None:
    """Its log may be another one than the one that records were moved of: the relay has to ask the target again."""
    retirement = retirement_of(partition)
    retirement.closed = False
    retirement.end = None
    ask_anew(retirement, Close.NOT_ASKED)


def ask_anew(retirement: Retirement, close: Close) -> None:
    """What the target was known to have may not be so any more: nothing counts as moved until it has told again."""
    retirement.moved = UNKNOWN
    retirement.close = close
    retirement.advanced()


def thaw(partition: Partition) -> None:
    """Nothing came of it: readers are shown everything again."""
    partition.retirement = None
    partition.__class__ = Partition
    partition.note_committed(partition.committed)


def seal(partition: Partition) -> None:
    """Begin a new segment, so that what readers have left can expire whatever is written from now on."""
    log, retirement = partition.log, retirement_of(partition)
    if not log.failed and log.active.base_offset < retirement.limit:
        try:
            log.roll(retirement.written_ms)
        except ApiError:
            return  # the disk is full: the segment goes later, that is all


def left_to_move(partition: Partition) -> int:
    """Committed offsets that are not known to be in the target; a new leader's relay has to ask for that first."""
    retirement = retirement_of(partition)
    moved = max(retirement.moved, retirement.limit, partition.log.start_offset)
    return max(partition.committed.offset - moved, 0)


def left_to_read(partition: Partition) -> int:
    """Where what readers have left begins; the limit, or further on, when that is nothing."""
    log, limit = partition.log, retirement_of(partition).limit
    return log.start_offset if log.start_offset < log.end_offset else max(log.start_offset, limit)


def is_drained(partition: Partition) -> bool:
    """Whether everything that was ever written is committed, and committed in the target as well."""
    end = partition.log.end_offset
    return retirement_of(partition).moved >= end and partition.committed.offset == end
