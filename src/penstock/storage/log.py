"""The write-ahead log of one partition: a row of segments, of which only the last is written to.

Owned by the event loop: no method here blocks on the disk except `append`, which writes to the page cache.
Whatever has to wait is handed out as a job for a thread and reported back on the loop: syncs and checkpoints
(`sync_job`), deletions (`expire`, `start_job`), cutting the end off (`truncation`), searches by time (`lookup`),
cold reads (`ColdRead`). Sync jobs and truncations come one at a time. The order that recovery relies on:

    append  ->  sync (bytes durable)  ->  checkpoint (indexes, producers, epochs, then the recovery point)

so that nothing before the recovery point ever needs to be looked at again after a crash.
"""

from pathlib import Path
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFullError, ShortageError, StorageError
from penstock.core.files import Files
from penstock.records.batch import BatchHeader, stamp
from penstock.records.relay import RELAY_IDS
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.checkpoint import Checkpoint, LogEnd, RecoveryPoint, SyncJob
from penstock.storage.compaction.checkpoint import Cleaned
from penstock.storage.deletion import Deletion, StartJob
from penstock.storage.epochs import EpochHistory
from penstock.storage.lookup import TimeLookup
from penstock.storage.producer_copy import AppendedBatch
from penstock.storage.producers import ProducerState
from penstock.storage.retention import RetentionLimits, SegmentSummary, expired_segments
from penstock.storage.segment import RELATIVE_OFFSET_MAX, Segment, Slice
from penstock.storage.segment_row import SegmentRow
from penstock.storage.settings import LogSettings, index_entries_max, roll_after_ms
from penstock.storage.truncation import Truncation
from penstock.storage.unsynced import Unsynced

_new_tuple: Any = tuple.__new__  # without a call in Python
CHECKPOINT_EVERY_BYTES = 64 * 1024 * 1024  # at most so much is scanned after a crash: a fraction of a second
SCAN_COST_PER_BATCH = 512  # besides its bytes, in bytes: small batches must not make a restart slow
HELD_BATCH_BYTES_MAX = 16 * 1024  # such a batch may wait for its neighbours: a write costs more than a copy


class Log:
    # Without slots, each of so many attributes would take longer to reach.
    __slots__ = (
        "__weakref__", "_active", "_active_since_ms", "_checkpoint_due", "_cost_since_checkpoint", "_epochs_saved",
        "_held", "_held_at", "_index_interval_bytes", "_index_is_full", "_leaving", "_point", "_point_in_doubt",
        "_roll_after_ms", "_segment_bytes", "_settings", "cleaned", "cleaned_in_doubt", "cuts", "directory",
        "end_offset", "epochs", "failed", "files", "is_incomplete", "may_have_gaps", "owner", "producers", "row",
        "start_offset", "synced_end", "unsynced", "unsynced_bytes",
    )  # fmt: skip

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
        aborted: AbortedTransactions | None = None,
        point: RecoveryPoint | None = None,
        unscanned_cost: int = 0,
        owner: str = "",
    ) -> None:
        self.files, self.directory, self.owner = files, directory, owner
        self.row = SegmentRow(segments, aborted or AbortedTransactions(files, directory))
        self._leaving: list[Segment] = []  # out of the row, and not hidden yet, oldest first
        self._active = segments[-1]  # the row's, at hand for the hot path
        self.start_offset, self.end_offset = start_offset, end_offset
        self.epochs, self.producers = epochs, producers
        self.synced_end = self.end()
        self.unsynced, self.unsynced_bytes = Unsynced(files.descriptors), 0
        self._point = point  # the last that is known to be durable
        self._point_in_doubt = False  # whether a later one may be, of a checkpoint that was not finished
        self._cost_since_checkpoint, self._checkpoint_due = unscanned_cost, False
        self._epochs_saved: bytes | None = None
        self._active_since_ms: int | None = None
        self._held, self._held_at = bytearray(), 0  # batches that are appended and not written yet
        self.failed = self._index_is_full = self.is_incomplete = False  # see `storage.incomplete`
        self.cleaned, self.cleaned_in_doubt = Cleaned(), False  # whether the file may say something else
        self.may_have_gaps = False  # whether the cleaner's file is there, which says so to the next start
        self.cuts = 0  # of its end: what was read of it before one may be another record's by now
        self.settings = settings

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._segment_bytes = settings.segment_bytes
        self._index_interval_bytes = settings.index_interval_bytes
        self._roll_after_ms = roll_after_ms(settings, self._active.stem)

    def end(self) -> LogEnd:
        end: LogEnd = _new_tuple(LogEnd, (self.end_offset, self._active.base_offset, self._active.size))
        return end

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def segments(self) -> list[Segment]:
        return self.row.segments

    @property
    def size_bytes(self) -> int:
        return self.row.size_bytes

    def close(self, *, deleted: bool = False) -> None:
        """Open no file again. In another log they may grow: answers that wait with them end, unless `deleted`."""
        self.failed |= deleted  # whoever still has it makes no segment in the directory of its successor
        self.unsynced.clear()
        self.producers.leave()
        for segment in (*self._leaving, *self.segments):
            segment.let_go() if deleted else segment.close()

    # -- writing -------------------------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int, *, hold: bool = False
    ) -> int:
        """Write one validated batch at the end and return its first offset. Stamps the batch in place.

        With `hold`, a small batch is only remembered, to be written together with others by `write_out`.
        """
        if self.failed:
            raise self._offline()
        if header.producer_id >= RELAY_IDS:  # before it is in the file, which every start reads
            self.producers.relays.check_sound(header, batch)
        active = self._active
        size, offset, position = len(batch), self.end_offset, active.size
        last = offset + header.last_offset_delta
        is_full = position and (position + size > self._segment_bytes or self._index_is_full)
        is_far = last - active.base_offset > RELATIVE_OFFSET_MAX
        if is_full or is_far or (position and self._active_is_old(header, now_ms)):
            active = self.roll(now_ms)
        if self.unsynced.last is not active:
            try:
                self.unsynced.add(active)
            except StorageError as error:
                raise self._write_failed(None, error) from error
        stamp(batch, 0, offset, leader_epoch)
        if hold and size <= HELD_BATCH_BYTES_MAX:
            if not self._held:
                self._held_at = active.size
            self._held += batch
        else:
            if self._held:
                self.write_out()
            try:
                active.file.pwrite(batch, active.size)
            except StorageError as error:
                raise self._write_failed(active, error) from error
        try:
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, offset)
            active.appended(header, offset, size, self._index_interval_bytes)
            self.end_offset = last + 1
            if header.producer_id >= 0:
                aborted = self.producers.record(header, offset, batch)
                if aborted is not None:
                    self.row.aborted.add(active.base_offset, aborted)
        except BaseException:  # a defect: the file has what memory has not, so only opening it again can tell
            self.sync_failed()
            raise
        self.unsynced_bytes += size
        self._cost_since_checkpoint += size + SCAN_COST_PER_BATCH
        return offset

    def write_out(self) -> None:
        """Write what `append` held back. When that fails, offsets given out are void: the log goes offline."""
        if self.failed:
            raise self._offline()
        if not self._held:
            return
        held, self._held = self._held, bytearray()
        try:
            self._active.file.pwrite(held, self._held_at)
        except StorageError as error:
            self.sync_failed()
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def skip_to(self, header: BatchHeader, now_ms: int) -> None:
        """This batch comes next: what lies before it was compacted away where it comes from."""
        size, base = self._active.size + header.size_bytes, self._active.base_offset
        full = size > self._segment_bytes or header.last_offset - base > RELATIVE_OFFSET_MAX
        if full or self._index_is_full or self._active_is_old(header, now_ms):
            self.roll(now_ms)  # before the gap: recovery takes no segment that leaves a hole behind the last
        self.end_offset = header.base_offset

    def find_repeat(self, header: BatchHeader) -> AppendedBatch | None:
        """Whether an idempotent producer sends again what is here; ApiError when its sequence has a gap."""
        if self.failed:
            raise self._offline()  # what it sent may have been lost with the failure
        return self.producers.check(header)

    def _offline(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline after an I/O error")

    def _active_is_old(self, header: BatchHeader, now_ms: int) -> bool:
        """By the batches' own time where they have one; as in Kafka, an idle segment rolls with its next batch."""
        first, timestamp = self._active.first_timestamp, header.max_timestamp
        if first >= 0 and timestamp >= 0:
            return timestamp - first > self._roll_after_ms
        if self._active_since_ms is None:
            self._active_since_ms = now_ms
        return now_ms - self._active_since_ms > self._roll_after_ms

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start the next one; an empty one stays, if its offsets reach so far."""
        self.write_out()
        sealed = self._active
        if not sealed.size and self.end_offset - sealed.base_offset <= RELATIVE_OFFSET_MAX:
            return sealed
        try:
            segment = sealed.followed_by(self.end_offset)
        except StorageError as error:
            raise self._write_failed(None, error) from error
        self.row.add(segment)
        self._active, self._active_since_ms, self._index_is_full = segment, now_ms, False
        self._roll_after_ms = roll_after_ms(self._settings, segment.stem)
        self.unsynced.names = self._checkpoint_due = True
        return segment

    def _write_failed(self, active: Segment | None, error: StorageError) -> ApiError:
        """A shortage heals by itself; after anything else only a scan can tell what is there."""
        if not isinstance(error, ShortageError):
            self.sync_failed()
        elif active is not None and isinstance(error, DiskFullError):
            try:
                active.file.truncate(active.size)  # a piece of the batch may have made it
            except StorageError:
                self.sync_failed()
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    # -- making it durable ---------------------------------------------------------------------------------

    @property
    def needs_checkpoint(self) -> bool:
        due = self._checkpoint_due or bool(self.row.merged)
        return due or self._cost_since_checkpoint >= CHECKPOINT_EVERY_BYTES

    @property
    def is_checkpointed(self) -> bool:
        """Whether a restart would find everything in place already, so that a clean stop has nothing to write."""
        point = self._point
        if point is None or point.sealed is None or self._checkpoint_due or self.row.merged:
            return False
        place = point.offset, point.segment, point.position
        return place == self.end() and point.start_offset == self.start_offset

    def sync_job(self, *, checkpoint: bool = False) -> SyncJob:
        """Everything written so far, to be made durable in a thread; report back with `synced`."""
        self.write_out()
        end = self.end()
        point = Checkpoint.of(self, end, self._point, self._epochs_saved) if checkpoint else None
        job = SyncJob(self.files, self.directory, end, self.unsynced.take(self.unsynced_bytes), point)
        self.unsynced_bytes = 0
        if checkpoint:
            self._cost_since_checkpoint, self._checkpoint_due = 0, False
        # Looked at here, because syncs come often enough to keep the index bounded, and appends cannot spare the time.
        self._index_is_full = len(self._active.indexed()) >= index_entries_max(self._settings)
        return job

    def synced(self, job: SyncJob) -> None:
        if job.end.offset > self.synced_end.offset:
            self.synced_end = job.end
        if job.checkpointed and job.checkpoint is not None:
            self._checkpointed(job.checkpoint)
        elif job.checkpoint is not None:
            self._checkpoint_due = self._point_in_doubt = True  # short of something: again with the next sync

    def sync_undone(self, job: SyncJob) -> None:
        """It could not even begin, for want of a descriptor: what it was to cover waits for the next one."""
        if not self.failed:
            self.unsynced.put_back(job.written)
        self.unsynced_bytes += job.written.size_bytes
        self._checkpoint_due = self._checkpoint_due or job.checkpoint is not None

    def sync_failed(self) -> None:
        """The kernel may have dropped pages: only a scan from the recovery point helps, which writes them once more."""
        self.failed = True
        self.unsynced.clear()  # of these files nobody waits for an error any more

    def _checkpointed(self, checkpoint: Checkpoint) -> None:
        self._point, self._point_in_doubt = checkpoint.point, False
        if checkpoint.epochs is not None:
            self._epochs_saved = checkpoint.epochs
        self.row.indexes_saved(checkpoint)
        self.row.merged = [merged for merged in self.row.merged if merged not in checkpoint.merged]

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, limit: LogEnd, *, at_least_one: bool) -> Slice | None:
        """Whole batches from the one that holds `offset`, below `limit`. None: nothing (that fits) to read yet.

        The first batch may begin before `offset`; clients skip what they did not ask for. Raises ColdRead when
        finding the place would have to wait for the disk.
        """
        if offset >= limit.offset or (size_max <= 0 and not at_least_one):
            return None
        return self.row.read(offset, size_max, limit, at_least_one=at_least_one)

    def lookup(self, limit: LogEnd) -> TimeLookup:
        """Searches by time below `limit`, to be run in a thread."""
        return TimeLookup(list(self.segments), self.start_offset, limit)

    # -- shortening ----------------------------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments go with the next `expire`."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.advance_start(offset)

    def start_job(self) -> StartJob:
        """Makes the start durable, in a thread: DeleteRecords answers after it."""
        # Behind what a power cut leaves, it would make an empty log of this one, which knows no producers.
        return StartJob(self.files, self.directory, min(self.start_offset, self.synced_end.offset))

    def summaries(self) -> list[SegmentSummary]:
        return self.row.summaries(self.end_offset)

    def expire(self, limits: RetentionLimits, limit_offset: int, now_ms: int) -> Deletion | None:
        """Take out what retention gives up, below the high watermark; the answer's files are deleted by a thread.

        Only segments before the recovery point's go: a restart must still find what producers did in them. Where
        that holds any back, `needs_checkpoint` says so, and they go the next time.
        """
        count = expired_segments(self.summaries(), limits, self.start_offset, limit_offset, now_ms)
        if count == len(self.segments):
            try:
                self.roll(now_ms)  # all of it is old: the log goes on, empty, in a new segment
            except ApiError:
                if self.failed:
                    raise
                count -= 1  # a full disk: what lies before it goes first, and makes room
        self._leaving += self.remove_segments(min(count, self.checkpointed_count(wanted=count)))
        # What could not be hidden before comes first: behind a hole in the row it would be in the log again.
        start = self.segments[0].base_offset
        return Deletion(self.files, self.directory, list(self._leaving), start) if self._leaving else None

    def hidden(self, done: Deletion) -> None:
        """As far as it came; what is left goes with the next `expire`."""
        self._leaving = [segment for segment in self._leaving if segment not in done.hidden]

    def checkpointed_count(self, wanted: int) -> int:
        """Segments before the recovery point's that nobody replaces; fewer than `wanted` ask for a checkpoint."""
        count = self.row.count_before(self._point.segment) if self._point else 0
        self._checkpoint_due = self._checkpoint_due or count < wanted
        return next((at for at, segment in enumerate(self.segments[:count]) if segment.pinned), count)

    def remove_segments(self, count: int) -> list[Segment]:
        """Take the oldest `count` sealed segments out of the log; the caller deletes their files."""
        removed = self.row.remove_first(count)
        self.unsynced.leave_out(removed)
        if removed:
            self.advance_start(self.segments[0].base_offset)
        return removed

    def truncation(self, offset: int) -> Truncation | None:
        """Cut the log back to end at `offset`, or before the batch that holds it; None: it ends there already.

        Run it in a thread, then tell `truncated`; nobody writes or syncs in between. StorageError: open it again first.
        """
        if offset >= self.end_offset:
            return None
        assert not any(segment.pinned for segment in self.segments), "compaction is to be stopped before"
        if self._leaving and offset < self.segments[0].base_offset:
            raise StorageError(f"cut to {offset}, records that retention could not hide yet would follow")
        doubts = self._point, self._point_in_doubt, self.cleaned, self.cleaned_in_doubt
        known = *doubts, self.epochs.copy(), self.unsynced.files()
        job = Truncation(self.files, self.directory, list(self.segments), offset, *known)
        job.known = self.producers.rows()
        if not self.size_bytes:  # nothing that they wrote goes, but for what is written again
            job.producers = self.producers.below(offset)
        return job

    def truncated(self, done: Truncation) -> None:
        if done.last is not None:
            done.last.restore(done.index, done.end.position, done.max_timestamp, self._index_interval_bytes)
        self._active = done.kept[-1]
        self.row.replace(done.kept)
        self.row.aborted.cut(done.end.offset, done.end.segment)
        self.end_offset, self.start_offset = done.end.offset, min(self.start_offset, done.end.offset)
        self.synced_end = self.end()
        self.epochs.truncate_from(self.end_offset)
        self.producers = done.producers.in_place_of(self.producers)
        self._point, self._point_in_doubt, self._epochs_saved = done.point, False, None
        self.cleaned, self.cleaned_in_doubt, self._checkpoint_due = done.cleaned, False, True
        self.cuts, self.unsynced_bytes, self._index_is_full = self.cuts + 1, 0, False
        self.unsynced.clear()
