"""A follower's side of a log: batches taken over as the leader has them, and places found by offset."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import BatchHeader, check_batch, size_at
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead

EPOCH_MAX = 0x7FFFFFFF


class GapError(StorageError):
    """The next batch does not begin where the log ends, and nothing says that what lies between was compacted away."""

    def __init__(self, end_offset: int, base_offset: int) -> None:
        super().__init__(f"a batch at {base_offset} where the log ends at {end_offset}")
        self.place = (end_offset, base_offset)


class UnknownStartError(StorageError):
    """A batch of a later epoch lies behind a gap, in which that epoch, and others, may have begun."""

    def __init__(self, epoch: int, gap: range, position: int) -> None:
        super().__init__(f"epoch {epoch} began somewhere between {gap.start} and {gap.stop}")
        self.epoch = epoch
        self.gap = gap
        self.position = position  # of the batch: what lies before it was appended


def append_replicated(
    log: Log,
    data: memoryview,
    now_ms: int,
    *,
    epoch: int = EPOCH_MAX,
    gap: tuple[int, int] | None = None,
    starts: Sequence[tuple[int, int]] = (),
) -> None:
    """Append whole batches with the offsets and epochs they have, byte for byte; a piece at the end is left out.

    No leader of `epoch` has batches of a later one: whoever sends them is not the leader that was asked. `gap` is one
    that may be, though the log does not compact. `starts` tells where epochs began that begin within gaps.
    ApiError: the disk does not take them, or one is damaged. StorageError: they do not follow what is here.
    """
    position, size = 0, len(data)
    while (length := size_at(data, position, size)) is not None and position + length <= size:
        header = check_batch(data, position)
        end_offset, epochs = log.end_offset, log.epochs
        if header.leader_epoch > epoch:
            raise StorageError(f"a batch of epoch {header.leader_epoch} from a leader of epoch {epoch}")
        if header.base_offset < log.end_offset:
            raise StorageError(f"a batch at {header.base_offset} where the log ends at {log.end_offset}")
        if header.base_offset > log.end_offset:
            found = GapError(log.end_offset, header.base_offset)
            if not log.settings.compacts and found.place != gap:
                raise found
            _skip_to(log, header, now_ms, starts, position)
        batch = memoryview(bytearray(data[position : position + length]))
        try:
            log.append(batch, header, header.leader_epoch, now_ms)
        except ApiError:
            # A full disk. The next batch might begin a segment behind the gap, and recovery takes none there but for
            # one that a name tells of.
            if log.active.base_offset <= end_offset:
                log.end_offset, log.epochs = end_offset, epochs
            raise
        position += length


def _skip_to(
    log: Log, header: BatchHeader, now_ms: int, starts: Sequence[tuple[int, int]], position: int
) -> None:
    epochs, epoch = log.epochs, header.leader_epoch
    if epoch > epochs.latest:
        gap = range(log.end_offset, header.base_offset)
        epochs = epochs.copy()
        if not epochs.cross_gap(starts, epoch, gap):
            raise UnknownStartError(epoch, gap, position)
    log.skip_to(header, now_ms)
    log.epochs = epochs


def truncate(log: Log, offset: int) -> None:
    """The whole of a truncation at once. Blocks."""
    job = log.truncation(offset)
    if job is not None:
        job.run()
        log.truncated(job)


def end_at(log: Log, offset: int) -> LogEnd:
    """The place where everything below `offset`, the beginning of a batch, ends.

    Reads, where that is neither indexed nor remembered, and on the loop: at a leader it is what a follower was just
    given from here, so it hardly ever waits for the disk.
    """
    if offset >= log.end_offset:
        return log.end()
    segments = log.segments
    at = max(bisect_right([segment.base_offset for segment in segments], offset) - 1, 0)
    segment = segments[at]
    if offset <= segment.base_offset:
        return LogEnd(offset, segment.base_offset, 0)
    while True:
        try:
            position = segment.locate(offset, segment.size)
        except ColdRead as read:
            read.warm()
            continue
        return LogEnd(offset, segment.base_offset, segment.size if position is None else position)


def find_end(log: Log, offset: int) -> LogEnd | None:
    """The same; None where a read fails."""
    with suppress(StorageError):
        return end_at(log, offset)
    return None


def batches_end(log: Log) -> int:
    """Where its last batch ends, or the log starts: before its end, if that lies behind a gap. Reads, on the loop."""
    for segment in reversed(log.segments):
        if segment.size:
            index = segment.index or segment.index_up_to(segment.size)[0]
            end = log.start_offset
            for _, header in segment.walk(index.before_position(segment.size)[0], segment.size, wait=True):
                end = max(end, header.next_offset)
            return end
    return log.start_offset
