"""Jobs that make a log durable, run in threads: first its bytes, then what spares a restart from reading them."""

import json
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import StorageError
from penstock.core.files import File, Files
from penstock.storage import index as index_files
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    EPOCHS_FILE,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    parse_segment_name,
    segment_name,
)

# Producer snapshots a directory keeps: the newest, and one to fall back on.
_SNAPSHOTS_KEPT = 2


class LogEnd(NamedTuple):
    """A point in the log: everything below `offset`, which is the byte `position` of a segment."""

    offset: int
    segment: int
    position: int


class RecoveryPoint(NamedTuple):
    """Where a restart begins to scan. Everything below is durable, its index and producer state included."""

    start_offset: int  # where the log starts for readers
    offset: int
    segment: int
    position: int
    index_entries: int  # how many index entries of that segment lie below
    max_timestamp: int  # of that segment, below the position

    def dump(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> "RecoveryPoint":
        try:
            fields = json.loads(data)
            return cls(**{name: int(fields[name]) for name in cls._fields})
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"unreadable recovery point: {error}") from error


class Checkpoint(NamedTuple):
    files: Files
    directory: Path
    point: RecoveryPoint
    unsaved: list[tuple[Path, int, SegmentIndex]]
    snapshot: bytes
    epochs: bytes

    def write(self, *, durable: bool = True) -> None:
        """The recovery point goes last: it vouches for the rest.

        Not `durable` is for a shutdown that writes many partitions and then syncs the whole file system once,
        before it leaves its mark.
        """
        files, directory = self.files, self.directory
        for stem, base_offset, rest in self.unsaved:
            index_files.save(files, stem, base_offset, rest, durable=durable)
        if self.snapshot is not None:
            _write(
                files, directory / segment_name(self.point.offset, SNAPSHOT), self.snapshot, durable=durable
            )
        _write(files, directory / EPOCHS_FILE, self.epochs, durable=durable)
        _write(files, directory / RECOVERY_POINT_FILE, self.point.dump(), durable=durable)
        self._drop_old_snapshots()

    def _drop_old_snapshots(self) -> None:
        names = self.files.list_dir(self.directory)
        snapshots = [name for name in names if parse_segment_name(name, SNAPSHOT) is not None]
        for name in snapshots[:-_SNAPSHOTS_KEPT]:
            self.files.unlink(self.directory / name)


class SyncJob(NamedTuple):
    files: Files
    end: LogEnd  # what is durable when the job is done
    data_files: list[File]
    directory: Path | None  # to be synced too, because it has new names
    checkpoint: Checkpoint | None

    def run(self) -> None:
        for file in self.data_files:
            file.sync()
        if self.directory is not None:
            self.files.sync_dir(self.directory)
        if self.checkpoint is not None:
            self.checkpoint.write()


def _write(files: Files, path: Path, data: bytes, *, durable: bool) -> None:
    if durable:
        files.write_atomically(path, data)
        return
    file = files.open(path, create=True)
    try:
        file.pwrite(data, 0)
        file.truncate(len(data))
    finally:
        file.close()
