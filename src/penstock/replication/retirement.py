"""A retired partition: readers keep what they had, writers are served as ever, and what they write is moved elsewhere.

    0 ............ limit ............ moved ........ committed ........ end
    readable, as     hidden from readers: in the     hidden, and still
    it always was    target's log as well            to be moved

The limit is chosen once, by the leader, and stands in the metadata from then on (ADR 11). A leader that has answered
the controller shows no more than that at once, and goes back to showing everything only if it is elected again without
any limit written down: then its answer came to nothing.

Being retired is a value that the partition has, and a ceiling among its limits (`replication.limits`): those that were
never retired have neither.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import read_header
from penstock.records.relay import filler_batch
from penstock.replication.limits import Reader

if TYPE_CHECKING:
    from penstock.replication.partition import Partition

# How far records are moved is the target's to tell.
UNKNOWN = -1

_FILLED_MAX = 1 << 31  # offsets that one batch can take


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

    def admit(self, partition: "Partition", now_ms: int) -> None:
        """Somebody writes: what it writes is to be moved. ApiError: too late."""
        if self.closed:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {partition.index} was retired: refresh the metadata and write to another",
            )
        self.written_ms = now_ms
        self.close = Close.NOT_ASKED
        self.begin_at_limit(partition, now_ms)

    def begin_at_limit(self, partition: "Partition", now_ms: int) -> None:
        if partition.log.end_offset < self.limit:
            _fill(partition, now_ms)


def _fill(partition: "Partition", now_ms: int) -> None:
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


def retirement_of(partition: "Partition") -> Retirement:
    """Of one that is retired."""
    assert partition.retirement is not None
    return partition.retirement


def find_limit(partition: "Partition") -> None:
    """Segments were exchanged: the limit, where there is one, may lie elsewhere now."""
    try:
        partition.limits.look_again()
    except StorageError as error:
        partition.sync_failed(str(error))  # found when the log is opened again


def is_retired(partition: "Partition") -> bool:
    """Also in the metadata: nothing takes it back."""
    return partition.retirement is not None and partition.retirement.epoch is None


def retire(partition: "Partition", limit: int, epoch: int | None, written_ms: int) -> None:
    """Show no more than what lies below `limit`; without an epoch for good, because the metadata says so."""
    known = partition.retirement
    if known is not None and known.limit == limit:
        known.epoch = epoch
        return
    partition.limits.hold_readers(limit)  # first: this reads, and where that fails nothing has changed yet
    partition.retirement = Retirement(limit, epoch, written_ms)


def freeze(partition: "Partition", now_ms: int) -> int:
    """For the controller, which is about to write it down: where this leader's readers stop, from now on.

    Everything below is committed, so no fail-over takes it back; and no reader of any leader has seen more, since all
    that was in the log when this epoch began is committed too.
    """
    known = partition.retirement
    if known is not None:
        return known.limit
    if not partition.knows_its_end:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "not all of what the last leader had is committed yet")
    limit = partition.high_watermark
    retire(partition, limit, partition.leader_epoch, now_ms)
    seal(partition)
    return limit


def lead_anew(partition: "Partition") -> None:
    """Its log may be another one than the one that records were moved of: the relay has to ask the target again."""
    retirement = retirement_of(partition)
    retirement.closed = False
    ask_anew(partition, Close.NOT_ASKED)


def ask_anew(partition: "Partition", close: Close) -> None:
    """What the target was known to have may not be so any more: nothing counts as moved until it has told again."""
    retirement = retirement_of(partition)
    retirement.moved = UNKNOWN
    retirement.close = close
    partition.limits.wake(Reader.RELAY)  # the relay, which waits for more to move


def thaw(partition: "Partition") -> None:
    """Nothing came of it: readers are shown everything again."""
    partition.retirement = None
    partition.limits.hold_readers(None)


def seal(partition: "Partition") -> None:
    """Begin a new segment, so that what readers have left can expire whatever is written from now on."""
    log, retirement = partition.log, retirement_of(partition)
    if not log.failed and log.active.base_offset < retirement.limit:
        try:
            log.roll(retirement.written_ms)
        except ApiError:
            return  # the disk is full: the segment goes later, that is all


def left_to_move(partition: "Partition") -> int:
    """Committed offsets that are not known to be in the target; a new leader's relay has to ask for that first."""
    retirement = retirement_of(partition)
    moved = max(retirement.moved, retirement.limit, partition.log.start_offset)
    return max(partition.high_watermark - moved, 0)


def left_to_read(partition: "Partition") -> int:
    """Where what readers have left begins; the limit, or further on, when that is nothing."""
    log, limit = partition.log, retirement_of(partition).limit
    return log.start_offset if log.start_offset < log.end_offset else max(log.start_offset, limit)


def is_drained(partition: "Partition") -> bool:
    """Whether everything that was ever written is committed, and committed in the target as well."""
    end = partition.log.end_offset
    return retirement_of(partition).moved >= end and partition.high_watermark == end
