"""A follower's side of a log: batches taken over as the leader has them, and places found by offset."""

from bisect import bisect_right

from penstock.core.errors import StorageError
from penstock.records.batch import check_batch, size_at
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead

EPOCH_MAX = 0x7FFFFFFF


class GapError(StorageError):
    """The next batch does not begin where the log ends, and nothing says that what lies between was compacted away."""

    def __init__(self, end_offset: int, base_offset: int) -> None:
        super().__init__(f"a batch at {base_offset} where the log ends at {end_offset}")
        self.place = (end_offset, base_offset)


def append_replicated(
    log: Log,
    data: memoryview,
    now_ms: int,
    *,
    epoch: int = EPOCH_MAX,
    gap: tuple[int, int] | None = None,
) -> None:
    """Append whole batches with the offsets and epochs they have, byte for byte; a piece at the end is left out.

    No leader of `epoch` has batches of a later one: whoever sends them is not the leader that was asked. `gap` is one
    that may be, though the log does not compact. ApiError: the disk does not take them, or one is damaged.
    StorageError: they do not follow what is here.
    """
    position, size = 0, len(data)
    while (length := size_at(data, position, size)) is not None and position + length <= size:
        header = check_batch(data, position)
        if header.leader_epoch > epoch:
            raise StorageError(f"a batch of epoch {header.leader_epoch} from a leader of epoch {epoch}")
        if header.base_offset < log.end_offset:
            raise StorageError(f"a batch at {header.base_offset} where the log ends at {log.end_offset}")
        if header.base_offset > log.end_offset:
            found = GapError(log.end_offset, header.base_offset)
            if not log.settings.compacts and found.place != gap:
                raise found
            log.skip_to(header, now_ms)
        batch = memoryview(bytearray(data[position : position + length]))
        log.append(batch, header, header.leader_epoch, now_ms)
        position += length


def truncate(log: Log, offset: int) -> None:
    """The whole of a truncation at once. Blocks."""
    job = log.truncation(offset)
    if job is not None:
        job.run()
        log.truncated(job)


def end_at(log: Log, offset: int) -> LogEnd:
    """The place where everything below `offset`, the beginning of a batch, ends. Reads what was just written."""
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
