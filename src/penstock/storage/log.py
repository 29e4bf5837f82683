"""The write-ahead log of one partition: a row of segments, of which only the last is written to.

Owned by the event loop: no method here blocks on the disk except `append`, which writes to the page cache.
Whatever has to wait (sync, checkpoints, deletions, cold reads) is handed out as a job for a thread and reported
back on the loop. The order that recovery relies on:

    append  ->  sync (bytes durable)  ->  checkpoint (indexes, producers, epochs, then the recovery point)

so that nothing before the recovery point ever needs to be looked at again after a crash.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError, DiskFullError
from penstock.core.files import Files
from penstock.records.batch import BatchHeader, stamp
from penstock.storage.checkpoint import Checkpoint, LogEnd, RecoveryPoint, SyncJob
from penstock.storage.epochs import EpochHistory
from penstock.storage.producers import AppendedBatch, ProducerState
from penstock.storage.segment import RELATIVE_OFFSET_MAX, Segment, Slice

# A crash costs at most the scan of this much: a fraction of a second.
CHECKPOINT_EVERY_BYTES = 64 * 1024 * 1024
# Sealed segments whose index a log keeps in memory: readers far behind are few, and sit in one place each.
_SEALED_INDEXES_KEPT = 4


class LogSettings(Protocol):
    """What a log needs to know of its topic's configuration."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...


class Log:
    def __init__(
        self,
        files: Files,
        directory: Path,
        settings: LogSettings,
        segments: list[Segment],
        *,
        start_offset: int,
        end_offset: int,
        epochs: EpochHistory,
        producers: ProducerState,
    ) -> None:
        self.files = files
        self.directory = directory
        self.settings = settings
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = epochs
        self.producers = producers
        self.synced_end = self.end()
        self._unsynced: list[Segment] = []  # segments with bytes that no finished sync covers, oldest first
        self._new_names = False  # the directory has entries that are not durable yet
        self.unsynced_bytes = 0
        self._bytes_since_checkpoint = 0
        self._rolled_since_checkpoint = False
        self._active_since_ms = 0
        self._recent: list[Segment] = []
        self.failed = False

    # -- what it is ----------------------------------------------------------------------------------------

    def end(self) -> LogEnd:
        active = self._active
        return LogEnd(self.end_offset, active.base_offset, active.size)

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # -- writing -------------------------------------------------------------------------------------------

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """Write one validated batch at the end and return its first offset. Stamps the batch in place."""
        active = self._active
        size = len(batch)
        settings = self.settings
        offset = self.end_offset
        if active.size and (
            active.size + size > settings.segment_bytes
            or offset + header.last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX
            or self._active_is_old(header, now_ms)
        ):
            active = self.roll(now_ms)
        if self.failed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline after an I/O error")
        stamp(batch, 0, offset, leader_epoch)
        try:
            active.file.pwrite(batch, active.size)
        except DiskFullError as error:
            self._cut_back(active)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full") from error
        except DiskFailedError as error:
            self.failed = True
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        active.appended(header, offset, size, settings.index_interval_bytes)
        self.end_offset = offset + header.last_offset_delta + 1
        if header.producer_id >= 0:
            self.producers.record(header, offset)
        self.unsynced_bytes += size
        self._bytes_since_checkpoint += size
        if not self._unsynced or self._unsynced[-1] is not active:
            self._unsynced.append(active)
        return offset

    def find_repeat(self, header: BatchHeader) -> AppendedBatch | None:
        """Whether an idempotent producer sends again what is here; ApiError when its sequence has a gap."""
        return self.producers.check(header)

    def _active_is_old(self, header: BatchHeader, now_ms: int) -> bool:
        active = self._active
        reference = active.first_timestamp
        if reference >= 0 and header.max_timestamp >= 0:
            return header.max_timestamp - reference > self.settings.segment_ms
        return now_ms - self._active_since_ms > self.settings.segment_ms

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start the next one."""
        try:
            segment = Segment.create(self.files, self.directory, self.end_offset)
        except DiskFullError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full") from error
        except DiskFailedError as error:
            self.failed = True
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        sealed = self._active
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._active_since_ms = now_ms
        self._new_names = self._rolled_since_checkpoint = True
        self._remember(sealed)
        return segment

    def _cut_back(self, active: Segment) -> None:
        """A write that ran out of space may have left a piece of itself behind the end."""
        try:
            active.file.truncate(active.size)
        except DiskFailedError:
            self.failed = True

    # -- making it durable ---------------------------------------------------------------------------------

    @property
    def needs_checkpoint(self) -> bool:
        return self._bytes_since_checkpoint >= CHECKPOINT_EVERY_BYTES or self._rolled_since_checkpoint

    def sync_job(self, *, checkpoint: bool = False) -> SyncJob:
        """Everything written so far, to be made durable in a thread; report back with `synced`."""
        end = self.end()
        job = SyncJob(
            self.files,
            end,
            [segment.file for segment in self._unsynced],
            self.directory if self._new_names else None,
            self._checkpoint(end) if checkpoint else None,
        )
        self._unsynced = []
        self._new_names = False
        self.unsynced_bytes = 0
        if checkpoint:
            self._bytes_since_checkpoint = 0
            self._rolled_since_checkpoint = False
        return job

    def synced(self, job: SyncJob) -> None:
        if job.end.offset > self.synced_end.offset:
            self.synced_end = job.end
        if job.checkpoint is not None:
            self._checkpointed(job.checkpoint)

    def sync_failed(self) -> None:
        """After a failed fsync the kernel may have dropped the pages: only a scan from the recovery point helps."""
        self.failed = True

    def _checkpoint(self, end: LogEnd) -> Checkpoint:
        unsaved = [
            (segment.stem, segment.base_offset, rest)
            for segment in self.segments
            if segment.index is not None and (rest := segment.index.unsaved()) is not None
        ]
        active = self._active
        point = RecoveryPoint(
            self.start_offset,
            end.offset,
            end.segment,
            end.position,
            len(active.indexed()),
            active.max_timestamp,
        )
        return Checkpoint(
            self.files, self.directory, point, unsaved, self.producers.dump(), self.epochs.dump()
        )

    def _checkpointed(self, checkpoint: Checkpoint) -> None:
        saved = {base: rest for _, base, rest in checkpoint.unsaved}
        for segment in self.segments:
            rest = saved.get(segment.base_offset)
            if rest is not None and segment.index is not None:
                segment.index.persisted = max(segment.index.persisted, rest.persisted + len(rest))

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, limit: LogEnd, *, at_least_one: bool) -> Slice | None:
        """Whole batches from the one that holds `offset`, below `limit`. None: nothing (that fits) to read yet.

        The first batch may begin before `offset`; clients skip what they did not ask for. Raises ColdRead when
        finding the place would have to wait for the disk.
        """
        if offset >= limit.offset:
            return None
        at = bisect_right(self._bases, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            if segment.base_offset > limit.segment:
                return None
            if segment is not self._active:
                self._remember(segment)
            end = limit.position if segment.base_offset == limit.segment else segment.size
            position = segment.locate(offset, end)
            if position is not None:
                return segment.slice_from(position, end, size_max, at_least_one=at_least_one)
            at += 1
        return None

    def _remember(self, segment: Segment) -> None:
        recent = self._recent
        if recent and recent[-1] is segment:
            return
        if segment in recent:
            recent.remove(segment)
        recent.append(segment)
        if len(recent) > _SEALED_INDEXES_KEPT:
            recent.pop(0).drop_index()

    def bytes_between(self, offset: int, limit: LogEnd) -> int:
        """An upper estimate of what a fetch at `offset` could get, without looking at the log itself."""
        at = bisect_right(self._bases, offset) - 1
        total = 0
        for segment in self.segments[max(at, 0) :]:
            if segment.base_offset > limit.segment:
                break
            total += limit.position if segment.base_offset == limit.segment else segment.size
        return total

    # -- shortening ----------------------------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments go by `take_expired`."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.advance_start(offset)

    def remove_segments(self, count: int) -> list[Segment]:
        """Take the oldest `count` sealed segments out of the log; the caller deletes their files."""
        count = min(count, len(self.segments) - 1)
        removed = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self._recent = [segment for segment in self._recent if segment not in removed]
        self._unsynced = [segment for segment in self._unsynced if segment not in removed]
        if removed:
            self.advance_start(self.segments[0].base_offset)
        return removed
