"""What is in the lake: entries, one after another, folded into one state.

Every so often the state is written down whole (a checkpoint), so that a lake with years of rounds opens as fast as a
new one; entries behind it are then removed, but for the last few, which are for people to read.
"""

import json
import re
from collections.abc import Collection
from dataclasses import replace

from penstock.spark.pipelines.archive.entries import (
    FORMAT_BEFORE_PARTING,
    ArchivedFile,
    Entry,
    TopicRound,
    decode_tree,
)
from penstock.spark.pipelines.archive.errors import ConflictError, ManifestError
from penstock.spark.pipelines.archive.lake import HOME, Lake
from penstock.spark.pipelines.archive.lines import add
from penstock.spark.pipelines.archive.topics import TopicArchive

FOLDER = f"{HOME}/manifest"
STAGING = f"{HOME}/staging"
CHECKPOINT_ENTRIES = 50
KEPT_ENTRIES = 100
_LOAD_TRIES = 5
_NAME = re.compile(r"(checkpoint-)?([0-9]{10})\.json")


class Manifest:
    """The state of a lake at one moment; `commit` is how it moves on."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.number = 0
        self.checkpoint = 0
        self.entries: list[Entry] = []  # those after the checkpoint
        self._topics: dict[tuple[str, str], TopicArchive] = {}
        self.missing: set[str] = set()  # files that are nowhere, as whoever owns the lake has found

    @classmethod
    def load(cls, lake: Lake) -> "Manifest":
        for _ in range(_LOAD_TRIES - 1):
            try:
                return cls._load(lake)
            except FileNotFoundError:
                continue  # an archiver made a checkpoint while we read, and removed what is before it
        return cls._load(lake)

    @classmethod
    def _load(cls, lake: Lake) -> "Manifest":
        manifest = cls(lake)
        checkpoints, numbers = _names(lake)
        if checkpoints:
            manifest._start_from(max(checkpoints))
        for number in sorted(number for number in numbers if number > manifest.checkpoint):
            if number != manifest.number + 1:
                raise ManifestError(
                    f"the manifest of {lake.uri} has no entry {manifest.number + 1}, but has {number}: "
                    "bring it back from a copy of the lake"
                )
            manifest._apply(Entry.decode(entry_path(number), lake.read(entry_path(number))))
        return manifest

    @property
    def lake(self) -> Lake:
        return self._lake

    @property
    def topics(self) -> dict[str, list[TopicArchive]]:
        """By name; the incarnations of each from the oldest to the newest."""
        found: dict[str, list[TopicArchive]] = {}
        for archive in sorted(self._topics.values(), key=lambda archive: (archive.topic, archive.since)):
            found.setdefault(archive.topic, []).append(archive)
        return found

    def topic(self, name: str, topic_id: str | None = None) -> TopicArchive | None:
        """One incarnation, by default the newest."""
        if topic_id is not None:
            return self._topics.get((name, topic_id))
        incarnations = self.topics.get(name)
        return incarnations[-1] if incarnations else None

    @property
    def files(self) -> dict[str, ArchivedFile]:
        return {path: file for archive in self._topics.values() for path, file in archive.files.items()}

    def commit(self, entry: Entry) -> None:
        """Durable when this returns; ConflictError when somebody else has committed since this was loaded.

        After any other error (or Ctrl-C) nobody knows: the entry may be there.
        """
        assert entry.number == self.number + 1, f"entry {entry.number} after {self.number}"
        try:
            self._lake.create(entry_path(entry.number), entry.encode())
        except FileExistsError:
            # By us: a file system that tried a rename again whose first answer got lost finds its own.
            if not self._has(entry):
                raise ConflictError(self._lake.uri) from None
        # The name may have been free only because it is so old that it was removed again.
        checkpoints, _ = _names(self._lake)
        if any(number >= entry.number for number in checkpoints):
            self._lake.delete(entry_path(entry.number))
            raise ConflictError(self._lake.uri)
        self._apply(entry)

    def _has(self, entry: Entry) -> bool:
        """The name of a round is random: of two entries of one number it tells whose this one is."""
        where = entry_path(entry.number)
        try:
            return Entry.decode(where, self._lake.read(where)).round == entry.round
        except FileNotFoundError:
            return False  # another's, so old that it was removed again

    def tidy(self) -> None:
        """Write a checkpoint when it is time. Only when every file of every entry is in its place."""
        if self.number - self.checkpoint < CHECKPOINT_ENTRIES or self._waits():
            return
        # One may have gone since it was put there.
        files = self.files
        added = [files[file.path] for entry in self.entries for file in entry.added if file.path in files]
        self.missing |= {file.path for file in added} - self.present(added)
        if self._waits():
            return
        moved = [
            replace(archive, files={path: replace(file, staged=None) for path, file in archive.files.items()})
            for archive in self._topics.values()
        ]
        tree = {
            "format": max((archive.format for archive in moved), default=FORMAT_BEFORE_PARTING),
            "number": self.number,
            "topics": [archive.as_json() for archive in moved],
        }
        content = json.dumps(tree, ensure_ascii=False).encode()
        self._lake.replace(f"{FOLDER}/checkpoint-{self.number:010}.json", content)
        self.checkpoint = self.number
        self.entries.clear()
        checkpoints, numbers = _names(self._lake)
        for number in checkpoints:
            if number < self.checkpoint:
                self._lake.delete(f"{FOLDER}/checkpoint-{number:010}.json")
        for number in numbers:
            if number <= self.checkpoint - KEPT_ENTRIES:
                self._lake.delete(entry_path(number))

    def present(self, files: Collection[ArchivedFile]) -> set[str]:
        """The paths of those that are in the lake, in their places or on the way there."""
        # A day at once: a file system far away takes longer for each call than for all that one can list.
        days = dict.fromkeys(file.folder.rpartition("/")[0] for file in files)
        there = {stored.path for day in days for stored in self._lake.list(day)}
        found = {file.path for file in files if file.path in there}
        left = [file for file in files if file.path not in found and file.staged is not None]
        if left:
            staging = {stored.path for stored in self._lake.list(STAGING)}
            found |= {file.path for file in left if file.staged in staging}
        return found

    def replaced(self, paths: Collection[str]) -> set[str]:
        """What compactions since the checkpoint put these in the place of, and what those were in the place of."""
        found: set[str] = set()
        for entry in reversed(self.entries):
            if any(file.path in found or file.path in paths for file in entry.added):
                found.update(entry.removed)
        return found

    def _waits(self) -> bool:
        """Whether a file is looked for that a checkpoint would forget; none that has no rows which count."""
        files = self.files
        return any(files[path].offsets for path in self.missing & files.keys())

    def _start_from(self, number: int) -> None:
        where = f"{FOLDER}/checkpoint-{number:010}.json"
        tree = decode_tree(where, self._lake.read(where))
        try:
            archives = [TopicArchive.from_json(topic) for topic in tree["topics"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ManifestError(f"the manifest file {where} is damaged ({error!r}): bring it back") from error
        self._topics = {(archive.topic, archive.topic_id): archive for archive in archives}
        self.number = self.checkpoint = number

    def _apply(self, entry: Entry) -> None:
        for taken in entry.topics:
            self._advance(entry, taken)
        for file in entry.added:
            self._topics[file.topic, file.topic_id].files[file.path] = file
        removed = set(entry.removed)
        for archive in self._topics.values() if removed else ():
            for path in removed & archive.files.keys():
                del archive.files[path]
        given_up = {file.path for file in entry.given_up}
        for archive in self._topics.values() if given_up else ():
            archive.give_up(sorted(given_up & archive.files.keys()))
        self.entries.append(entry)
        self.number = entry.number

    def _advance(self, entry: Entry, taken: TopicRound) -> None:
        key = taken.topic, taken.topic_id
        archive = self._topics.setdefault(key, TopicArchive(*key, since=entry.number))
        archive.cluster = taken.cluster or archive.cluster
        for partition, offset in taken.parted.items():
            archive.turn(entry.number, partition, offset, taken.branches.get(partition))
        for partition, spans in taken.lost.items():
            for span in spans:
                add(archive.line(partition).lost, span)
        for partition, span in taken.partitions.items():
            lost = taken.lost.get(partition, ())
            archive.line(partition).take(span, taken.epochs.get(partition, ()), lost)


def entry_path(number: int) -> str:
    return f"{FOLDER}/{number:010}.json"


def _names(lake: Lake) -> tuple[list[int], list[int]]:
    """The numbers of checkpoints and of entries; other names (parts of a write) are nobody's business."""
    checkpoints: list[int] = []
    entries: list[int] = []
    for stored in lake.list(FOLDER):
        found = _NAME.fullmatch(stored.path.rpartition("/")[2])
        if found:
            (checkpoints if found[1] else entries).append(int(found[2]))
    return checkpoints, entries
