"""The data directory: one process at a time, one identity, one directory per partition.

A partition directory says whose it is. One that the metadata does not know under that id (a topic deleted and made
again, a disk from another cluster) is moved aside and never served: its offsets would mean something else. So does one
of a partition that was removed since then, and made again under the same id and number: its records, its producers and
its leader epochs are none of the new one's, also where no record is left. The leader epoch that the partition began
with tells the two apart.
"""

import json
import logging
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.core.errors import DiskError, ShortageError, StorageError
from penstock.core.files import Files, Lock
from penstock.core.formats import NewerFormatError, check_version
from penstock.storage.checkpoint import RecoveryPoint, owner_of
from penstock.storage.data_format import (
    CLEAN_FILE,
    FORMAT,
    LOCK_FILE,
    Identity,
    read_identity,
    write_identity,
)
from penstock.storage.incomplete import note_incomplete
from penstock.storage.layout import (
    CLEANER_FILE,
    DRAFT,
    LOG,
    PARTITION_FILE,
    RECOVERY_POINT_FILE,
    parse_partition_dir,
    partition_dir,
    topics_dir,
)
from penstock.storage.new_log import lay_out
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.storage.settings import LogSettings

logger = logging.getLogger(__name__)

# From so many new partitions on, syncing the whole file system is cheaper than syncing each.
_SYNC_ALL_FROM = 8
_OWNER_VERSION = 1  # of `partition.json`; one that names none was written before it had one


@dataclass(frozen=True, slots=True)
class _Owner:
    topic_id: str
    # None: written by a version that did not say it.
    first_epoch: int | None


class DataDir:
    def __init__(self, files: Files, path: Path, rng: random.Random) -> None:
        self.files = files
        self.path = path
        self._rng = rng
        self._lock: Lock | None = None
        self.was_clean = False

    def open(self) -> None:
        """Take the directory for this process and note how the last one left it. Blocks."""
        files = self.files
        files.make_dirs(topics_dir(self.path))
        self._lock = files.lock(self.path / LOCK_FILE)
        mark = self.path / CLEAN_FILE
        self.was_clean = files.exists(mark)
        files.unlink(mark)
        # Of versions that kept one for all logs: now each has its own, and nobody shall read the old words again.
        files.unlink(self.path / CLEANER_FILE)
        if self.was_clean:
            files.sync_dir(self.path)
        else:
            # Whoever was killed here may have left names that only the page cache knows: a mark that is not removed for
            # good would vouch for what is written now, and directories (this one, too) that are not there for good
            # would take it with them.
            files.sync_all(self.path)

    def close(self, *, clean: bool) -> None:
        """Give it back; `clean` vouches that every log was synced and checkpointed up to its end."""
        if clean:
            self.files.sync_all(self.path)
            self.files.write_atomically(self.path / CLEAN_FILE, b"clean\n")
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identity(self, node_id: int, cluster_id: str) -> Identity:
        """The directory's identity, made up the first time; a broker of another one must not use it."""
        try:
            found = read_identity(self.files, self.path)
        except FileNotFoundError:
            found = Identity(cluster_id, node_id, _random_id(self._rng))
            write_identity(self.files, self.path, found)
        if found.cluster_id != cluster_id:
            raise StorageError(
                f"{self.path} belongs to cluster {found.cluster_id}, not {cluster_id}: use another data dir"
            )
        if found.node_id != node_id:
            raise StorageError(
                f"{self.path} belongs to node {found.node_id}, not {node_id}: give each broker its own data dir"
            )
        if found.format < FORMAT:  # from here on this release writes, which those before do not understand
            found = replace(found, format=FORMAT)
            write_identity(self.files, self.path, found)
        return found

    # -- partitions ------------------------------------------------------------------------------------------

    def open_partition(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        settings: LogSettings,
        *,
        first_offset: int = 0,
        first_epoch: int = 0,
        after_failure: bool = False,
        only_copy: bool = False,
        has_laggards: bool = False,
        expected: bool = False,
    ) -> Recovered:
        """The partition's log, recovered, or made new from `first_offset` on. Blocks.

        No record of it has a leader epoch below `first_epoch`: what is here of an earlier partition of the same number,
        which is gone, goes first. If it cannot go, nothing is opened.
        `after_failure` is for a log that was open when the disk failed, or may have been: see `open_log`, also for
        `only_copy`, `has_laggards` and `expected`.
        """
        directory = partition_dir(self.path, topic, index)
        owner = self._owner(directory)
        is_damaged = owner is None and self._is_named_by_point(directory, topic_id, index)
        if is_damaged:
            owner = _Owner(topic_id.hex(), None)
        if owner is not None and owner.topic_id != topic_id.hex():
            self._quarantine(directory, topic, index, owner.topic_id)
            owner = None
        elif owner is not None and owner.first_epoch is not None and owner.first_epoch < first_epoch:
            self.discard_partition(topic, topic_id, index)
            owner = None
        ownership = _ownership(topic, topic_id, index, first_epoch)
        opened = partial(
            open_log,
            self.files,
            directory,
            settings,
            rewrite_tail=after_failure,
            names_last=not after_failure,
            first_offset=first_offset,
            owner=owner_of(topic_id, index),
            only_copy=only_copy,
            has_laggards=has_laggards,
            expected=expected,
        )
        if owner is not None:
            recovered = opened()
            if not is_damaged and (owner.first_epoch is not None or not first_epoch):
                return recovered
            if not first_epoch or recovered.log.epochs.latest >= first_epoch:
                self.files.write_atomically(directory / PARTITION_FILE, ownership)
                return recovered
            # Of the partition before, or nothing was ever written to it.
            recovered.log.close()
            if not is_damaged:
                self.discard_partition(topic, topic_id, index)
        self._clear(directory, topic, index)
        self.files.make_dirs(directory)
        if expected:  # before it looks like a log: the next start may find nothing amiss with that
            note_incomplete(self.files, directory)
        self.files.write_atomically(directory / PARTITION_FILE, ownership)
        self.files.sync_dir(directory.parent)
        self.files.sync_dir(directory.parent.parent)
        return opened()

    def absent(self, topic: str, indexes: Iterable[int]) -> set[int]:
        """Which of these partitions have nothing here."""
        return {index for index in indexes if not self.files.exists(partition_dir(self.path, topic, index))}

    def lay_out(
        self, topic: str, topic_id: bytes, indexes: Iterable[int], expected: Collection[int] = ()
    ) -> None:
        """Before `open_partition` of many new partitions: two syncs of the file system instead of six for each.

        Whose a directory is, is said in a file that has its name when it is durable: a start
        after a kill goes by it, and after a power cut then, an empty one would disown what was written meanwhile.
        """
        directories = [(index, partition_dir(self.path, topic, index)) for index in indexes]
        new = [(index, path) for index, path in directories if not self.files.exists(path)]
        if len(new) < _SYNC_ALL_FROM:
            return
        for index, path in new:
            self.files.make_dirs(path)
            file = self.files.open(path / (PARTITION_FILE + DRAFT), create=True)
            file.pwrite(_ownership(topic, topic_id, index, first_epoch=0), 0)
            file.close()
            lay_out(self.files, path, owner_of(topic_id, index), is_incomplete=index in expected)
        self.files.sync_all(self.path)
        for _, path in new:
            self.files.rename(path / (PARTITION_FILE + DRAFT), path / PARTITION_FILE)
        self.files.sync_all(self.path)

    def _clear(self, directory: Path, topic: str, index: int) -> None:
        """Nobody owns it: set records aside; what a power cut left of a partition in the making just goes."""
        if self._has_records(directory):
            self._quarantine(directory, topic, index, "unknown")
        else:
            self.files.remove_tree(directory)

    def _has_records(self, directory: Path) -> bool:
        names = self.files.list_dir(directory)
        return any(name.endswith(LOG) and self.files.size(directory / name) for name in names)

    def _owner(self, directory: Path) -> "_Owner | None":
        try:
            fields = json.loads(self.files.read(directory / PARTITION_FILE))
            check_version(directory / PARTITION_FILE, int(fields.get("version", 0)), _OWNER_VERSION)
            first_epoch = fields.get("first_epoch")
            return _Owner(str(fields["topic_id"]), None if first_epoch is None else int(first_epoch))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _is_named_by_point(self, directory: Path, topic_id: bytes, index: int) -> bool:
        """Where the file that says whose it is is gone or damaged, the recovery point may say it as well.

        Where there is no such file, and nothing was ever written, the partition is one in the making.
        """
        try:
            point = RecoveryPoint.parse(self.files.read(directory / RECOVERY_POINT_FILE))
        except FileNotFoundError:
            return False
        except (DiskError, NewerFormatError):
            raise
        except StorageError:
            return False
        if point.owner != owner_of(topic_id, index):
            return False
        return (
            point.offset > 0 or self.files.exists(directory / PARTITION_FILE) or self._has_records(directory)
        )

    def _quarantine(self, directory: Path, topic: str, index: int, owner: str) -> None:
        self._move(directory, self.path / "quarantine", f"{topic}-{index}-{owner}")

    def _move(self, directory: Path, target: Path, name: str) -> None:
        self.files.make_dirs(target)
        taken = set(self.files.list_dir(target))
        number = 0
        while (free := f"{name}.{number}") in taken:
            number += 1
        self.files.rename(directory, target / free)
        self.files.sync_dir(target)
        self.files.sync_dir(directory.parent)

    def quarantine_strays(self, known: set[tuple[str, int]]) -> list[str]:
        """Move aside every partition directory that the metadata does not mention; returns their names.

        One that cannot be moved is in nobody's way before a partition of its name is opened, which looks whose it is.
        """
        moved = []
        for topic in self.files.list_dir(topics_dir(self.path)):
            for name in self.files.list_dir(topics_dir(self.path) / topic):
                index = parse_partition_dir(name)
                if index is not None and (topic, index) not in known:
                    directory = partition_dir(self.path, topic, index)
                    try:
                        owner = self._owner(directory)
                        self._quarantine(directory, topic, index, owner.topic_id if owner else "unknown")
                    except StorageError as error:
                        logger.error("%s-%d, not kept here, stays where it is: %s", topic, index, error)  # noqa: TRY400
                        continue
                    moved.append(f"{topic}-{index}")
        return moved

    def discard_topic(self, topic: str, topic_id: bytes) -> None:
        """Take a deleted topic out of sight; `empty_trash` does the rest."""
        directory = topics_dir(self.path) / topic
        if self.files.exists(directory):
            self._throw_away(directory, f"{topic}-{topic_id.hex()}")

    def discard_partition(self, topic: str, topic_id: bytes, index: int) -> None:
        """As `discard_topic`, for a replica that moved elsewhere."""
        directory = partition_dir(self.path, topic, index)
        if self.files.exists(directory):
            self._throw_away(directory, f"{topic}-{topic_id.hex()}-{index}")

    def _throw_away(self, directory: Path, name: str) -> None:
        try:
            self._move(directory, self.path / "trash", name)
        except ShortageError:  # a full disk, where this is what makes room: then all of it goes right here
            if self.files.exists(directory):
                # Nobody's before the first of it goes: the rest would look like a log that begins late, or has a hole.
                for name in (PARTITION_FILE, RECOVERY_POINT_FILE):  # either says whose it is
                    self.files.unlink(directory / name)
                self.files.sync_dir(directory)
                self.files.remove_tree(directory)
            self.files.sync_dir(directory.parent)

    def empty_trash(self) -> None:
        """What deleted partitions left behind. Unlinking big files takes long: for a thread.

        The directory itself stays: another topic may be on its way into it. What cannot go keeps nothing else.
        """
        trash = self.path / "trash"
        errors = []
        for name in self.files.list_dir(trash):
            try:
                self.files.remove_tree(trash / name)
            except StorageError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _ownership(topic: str, topic_id: bytes, index: int, first_epoch: int) -> bytes:
    fields = {
        "version": _OWNER_VERSION,
        "topic": topic,
        "partition": index,
        "topic_id": topic_id.hex(),
        "first_epoch": first_epoch,
    }
    return json.dumps(fields).encode() + b"\n"


def _random_id(rng: random.Random) -> str:
    """22 characters, as Kafka's ids: 128 random bits in URL-safe base64."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(rng.choice(alphabet) for _ in range(21)) + rng.choice("AQgw")
