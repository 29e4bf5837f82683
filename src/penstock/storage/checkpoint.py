"""Jobs that make a log durable, run in threads: first its bytes, then what spares a restart from reading them."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.core.crc32c import crc32c
from penstock.core.errors import (
    DiskError,
    DiskFailedError,
    DiskFullError,
    ShortageError,
    StorageError,
)
from penstock.core.files import Files
from penstock.core.formats import NewerFormatError, check_version
from penstock.storage import index as index_files
from penstock.storage.aborted_transactions import AbortedTransactions, UnsavedTransactions
from penstock.storage.deletion import StartJob
from penstock.storage.epochs import EpochHistory
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    DRAFT,
    EPOCHS_FILE,
    MERGED,
    OLD_POINT_FILE,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    parse_segment_name,
    range_name,
    segment_name,
)
from penstock.storage.open_transactions import TransactionRow
from penstock.storage.producer_copy import ProducerCopy, ProducerRow
from penstock.storage.producer_snapshot import dump_producers
from penstock.storage.producers import ProducerState
from penstock.storage.segment import Segment
from penstock.storage.unsynced import Written

# Producer snapshots a directory keeps: the newest, and one to fall back on.
_SNAPSHOTS_KEPT = 2
_POINT_VERSION = 1  # of the recovery point; one that names none was written before it had one


class LogEnd(NamedTuple):
    """A point in the log: everything below `offset`, which is the byte `position` of a segment."""

    offset: int
    segment: int
    position: int


class RecoveryPoint(NamedTuple):
    """Where a restart begins to scan. Everything below is durable, its index and producer state included."""

    start_offset: int  # where the log started for readers
    offset: int
    segment: int
    position: int
    index_entries: int  # how many index entries of that segment lie below
    max_timestamp: int  # of that segment, below the position
    producers: int  # 0: no snapshot was needed
    epoch: int  # the latest that wrote anything below; -1: none, so no epoch file was needed
    owner: str = ""  # whose log it is of, see `owner_of`; earlier versions did not say
    # (base offset, size) of each segment before that one. None: by an earlier version, which did not write down where
    # the log starts before retention took files, either.
    sealed: tuple[tuple[int, int], ...] | None = None

    def dump(self) -> bytes:
        body = json.dumps({"version": _POINT_VERSION, **self._asdict()}).encode()
        return b"%08x %s\n" % (crc32c(body), body)

    @classmethod
    def parse(cls, data: bytes) -> "RecoveryPoint":
        checksum, _, body = data.rstrip(b"\n").partition(b" ")
        try:
            if int(checksum, 16) != crc32c(body):
                raise ValueError("wrong checksum")
            fields = json.loads(body)
            check_version("the recovery point", int(fields.get("version", 0)), _POINT_VERSION)
            numbers = {name: int(fields[name]) for name in cls._fields if name not in ("owner", "sealed")}
            sealed = fields.get("sealed")
            if sealed is not None:
                sealed = tuple((int(base), int(size)) for base, size in sealed)
            return cls(**numbers, owner=str(fields.get("owner", "")), sealed=sealed)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"unreadable recovery point: {error}") from error


def epochs_below(files: Files, directory: Path, point: RecoveryPoint) -> EpochHistory:
    """The saved epochs, as far as the point vouches for them.

    The file may be ahead: it is written before a point that is moved on, and stays behind one that is moved back.
    """
    epochs = EpochHistory.parse(files.read(directory / EPOCHS_FILE))
    epochs.forget_after(point.epoch)
    epochs.truncate_from(point.offset + 1)
    return epochs


def known_epochs(files: Files, directory: Path, point: RecoveryPoint | None) -> EpochHistory | None:
    """Those of a log that lost records: without them whole replicas would be told that they part where those began.

    None: they are lost, too.
    """
    if point is None or point.epoch < 0:
        return EpochHistory()
    try:
        return epochs_below(files, directory, point)
    except (DiskError, NewerFormatError):
        raise  # not now
    except (FileNotFoundError, StorageError):
        return None


def owner_of(topic_id: bytes, partition: int) -> str:
    """Which log a directory is of: names are given again, ids never."""
    return f"{topic_id.hex()}-{partition}"


class Row(Protocol):
    merged: list[tuple[int, int]]
    aborted: AbortedTransactions


class Checkpointed(Protocol):
    """A log, as far as its checkpoint looks at it."""

    @property
    def owner(self) -> str: ...
    @property
    def files(self) -> Files: ...
    @property
    def directory(self) -> Path: ...
    @property
    def row(self) -> Row: ...
    @property
    def segments(self) -> list[Segment]: ...
    @property
    def active(self) -> Segment: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def producers(self) -> ProducerState: ...
    @property
    def epochs(self) -> EpochHistory: ...


class Checkpoint(NamedTuple):
    """What a restart needs besides the log's bytes, copied on the loop and written by a thread."""

    files: Files
    directory: Path
    point: RecoveryPoint
    unsaved: list[tuple[Path, SegmentIndex]]
    producers: list[ProducerRow]
    transactions: list[TransactionRow]
    aborted: list[UnsavedTransactions]
    epochs: bytes | None  # None: the file holds them already
    start_moved: bool  # since the last checkpoint; or it was not written down yet, and is to be from now on
    merged: list[tuple[int, int]]  # segments that this recovery point does not name any more

    @classmethod
    def of(
        cls, log: "Checkpointed", end: LogEnd, last: RecoveryPoint | None, epochs_saved: bytes | None
    ) -> "Checkpoint":
        """What there is to write of a log that ends at `end`. Runs on the loop."""
        active = log.active
        producers = log.producers.rows()
        epochs = log.epochs.dump()
        point = RecoveryPoint(
            start_offset=log.start_offset,
            offset=end.offset,
            segment=end.segment,
            position=end.position,
            index_entries=len(active.indexed()),
            max_timestamp=active.max_timestamp,
            producers=len(producers),
            epoch=log.epochs.latest,
            owner=log.owner,
            sealed=tuple((segment.base_offset, segment.size) for segment in log.segments[:-1]),
        )
        unsaved = [
            (segment.stem, rest)
            for segment in log.segments
            if not segment.pinned
            and segment.index is not None
            and (rest := segment.index.unsaved()) is not None
        ]
        unsaved_epochs = epochs if epochs != epochs_saved else None
        start_moved = (
            last is None or last.start_offset != log.start_offset or bool(point.sealed and not last.sealed)
        )
        # A mark serves as well whoever exchanges the same segments once more beside this checkpoint.
        pinned = {segment.base_offset for segment in log.segments if segment.pinned}
        merged = [place for place in log.row.merged if place[0] not in pinned]
        transactions, aborted = log.producers.transactions.rows(), log.row.aborted.unsaved()
        known = point, unsaved, producers, transactions, aborted, unsaved_epochs
        return cls(log.files, log.directory, *known, start_moved, merged)

    def write(self) -> None:
        """The recovery point goes last: it vouches for the rest."""
        self._save_indexes(durable=True)
        if self.start_moved:
            # Before the epochs, which know nothing of what lies below the start any more.
            StartJob(self.files, self.directory, self.point.start_offset).run()
        for path, data in self._small_files():
            self.files.write_atomically(path, data)
        self.drop_old()

    def draft(self) -> None:
        """The same for many logs at once: everything written, nothing synced, nothing in force yet."""
        self._save_indexes(durable=False)
        for path, data in self._small_files():
            file = self.files.open(path.with_name(path.name + DRAFT), create=True)
            try:
                file.pwrite(data, 0)
                file.truncate(len(data))
            finally:
                file.close()

    def publish(self, *, point: bool) -> None:
        """What was drafted is durable by now: put it in force, and when that is durable too, the point."""
        if self.start_moved and not point:
            # Not before the records below it are durable: a start behind the end would make an empty log of this one.
            StartJob(self.files, self.directory, self.point.start_offset).run()
        for path, _ in self._small_files():
            if (path.name == RECOVERY_POINT_FILE) == point:
                self.files.rename(path.with_name(path.name + DRAFT), path)

    def _save_indexes(self, *, durable: bool) -> None:
        for stem, index in self.unsaved:
            index_files.save(self.files, stem, index, durable=durable)
        for transactions in self.aborted:
            transactions.save(self.files, self.directory, durable=durable)

    def _small_files(self) -> Iterable[tuple[Path, bytes]]:
        if self.producers:
            name = segment_name(self.point.offset, SNAPSHOT)
            copies = list(map(ProducerCopy.of, self.producers))
            yield self.directory / name, dump_producers(copies, self.transactions)
        if self.epochs is not None:
            yield self.directory / EPOCHS_FILE, self.epochs
        yield self.directory / RECOVERY_POINT_FILE, self.point.dump()

    def drop_old(self) -> None:
        """Last, when the point is durable and nothing brings the one before it back, which goes by this."""
        self._drop_old_snapshots()
        for merged in self.merged:
            with suppress(StorageError):  # one that stays does no harm
                self.files.unlink(self.directory / range_name(*merged, MERGED))

    def _drop_old_snapshots(self) -> None:
        if self.start_moved:  # as it counts where nothing vouched for the log
            self.files.unlink(self.directory / OLD_POINT_FILE)
        if not self.producers:
            return
        names = self.files.list_dir(self.directory)
        snapshots = [name for name in names if parse_segment_name(name, SNAPSHOT) is not None]
        for name in snapshots[:-_SNAPSHOTS_KEPT]:
            self.files.unlink(self.directory / name)


class SyncJob:
    """Makes what a log had written when the job was made durable. One job of a log at a time."""

    __slots__ = ("_directory", "_files", "checkpoint", "checkpointed", "end", "written")

    def __init__(
        self,
        files: Files,
        directory: Path,
        end: LogEnd,
        written: Written,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self.end = end  # what is durable when the job is done
        self.written = written
        self.checkpoint = checkpoint
        self.checkpointed = False

    def run(self) -> None:
        self.sync_data()
        if self.checkpoint is not None:
            try:
                self.checkpoint.write()
                self.checkpointed = True
            except ShortageError:
                # The data is durable, and the old recovery point still holds. The new one may stand there, too.
                self.checkpointed = False

    def sync_data(self) -> None:
        """TooManyFilesError: nothing has happened, and it is to be done again."""
        try:
            for file in self.written.files:
                file.sync()
            if self.written.names:
                self._files.sync_dir(self._directory)
        except DiskFullError as error:
            # Space was promised when the bytes were written; now they may be gone from memory, too.
            raise DiskFailedError(str(error)) from error


def checkpoint_all(files: Files, data_dir: Path, jobs: list[SyncJob]) -> None:
    """Sync and checkpoint many logs for the price of three syncs of the file system: for a clean shutdown.

    A recovery point comes into force only when what it vouches for is durable under its final name, so a crash in
    between leaves the old ones. Raises DiskFullError when there is no room: then the shutdown was not clean.
    """
    checkpoints = [job.checkpoint for job in jobs if job.checkpoint is not None]
    for checkpoint in checkpoints:
        checkpoint.draft()
    files.sync_all(data_dir)
    for point in (False, True):
        for checkpoint in checkpoints:
            checkpoint.publish(point=point)
        files.sync_all(data_dir)
    for checkpoint in checkpoints:
        checkpoint.drop_old()
    for job in jobs:
        job.checkpointed = job.checkpoint is not None
