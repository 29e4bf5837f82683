"""What is in the lake: entries, one after another, folded into one state.

Every so often the state is written down whole (a checkpoint), so that a lake with years of rounds opens as fast as a
new one; entries behind it are then removed, but for the last few, which are for people to read.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.spark.pipelines.archive.entries import (
    FORMAT,
    FORMAT_BEFORE_PARTING,
    ArchivedFile,
    Entry,
    Mark,
    Span,
    TopicRound,
    decode_tree,
)
from penstock.spark.pipelines.archive.errors import ConflictError, ManifestError
from penstock.spark.pipelines.archive.lake import HOME, Lake

FOLDER = f"{HOME}/manifest"
STAGING = f"{HOME}/staging"
CHECKPOINT_ENTRIES = 50
KEPT_ENTRIES = 100
_LOAD_TRIES = 5
_NAME = re.compile(r"(checkpoint-)?([0-9]{10})\.json")


@dataclass(slots=True)
class TopicArchive:
    """What is archived of one incarnation of a topic: a topic that is deleted and made anew is another one."""

    topic: str
    topic_id: str
    since: int  # the entry that it came with: a later incarnation has a larger one
    ranges: dict[int, list[Span]] = field(default_factory=dict)
    lost: dict[int, list[Span]] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)
    # Per partition leader epochs, each with its end in what is archived: by them a log is recognised that gave
    # archived offsets to other records.
    marks: dict[int, list[Mark]] = field(default_factory=dict)

    @property
    def next_offsets(self) -> dict[int, int]:
        """Per partition: everything below is archived, or known to be lost."""
        ends: dict[int, int] = {}
        for spans in (self.ranges, self.lost):
            for partition, of_partition in spans.items():
                for _, end in of_partition:
                    ends[partition] = max(ends.get(partition, 0), end)
        return dict(sorted(ends.items()))

    @property
    def epochs(self) -> dict[int, int]:
        """Of the last archived offsets, where they are known."""
        ends = self.next_offsets
        return {
            at: marks[-1][0] for at, marks in self.marks.items() if marks and marks[-1][1] == ends.get(at)
        }

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def part(self, partition: int, offset: int) -> None:
        """The log of a partition is another one from this offset on: what is archived of the old one ends there."""
        for of_kind in (self.ranges, self.lost):
            spans = of_kind.get(partition, [])
            spans[:] = [(start, min(end, offset)) for start, end in spans if start < offset]
        _add(self.ranges.setdefault(partition, []), (offset, offset))
        marks = self.marks.get(partition, [])
        # What is left of an epoch that goes on behind the offset is of it, too.
        later = [epoch for epoch, end in marks if end > offset][:1]
        marks[:] = [mark for mark in marks if mark[1] <= offset]
        marks += [(epoch, offset) for epoch in later if not marks or marks[-1][1] < offset]
        self.files = {path: file.below(partition, offset) for path, file in self.files.items()}

    @property
    def lost_offsets(self) -> int:
        return sum(end - start for spans in self.lost.values() for start, end in spans)

    def as_json(self) -> dict[str, Any]:
        def spans(of: Mapping[int, list[Span]]) -> dict[str, list[list[int]]]:
            return {str(partition): [list(span) for span in found] for partition, found in of.items()}

        return {
            "topic": self.topic,
            "id": self.topic_id,
            "since": self.since,
            "ranges": spans(self.ranges),
            "lost": spans(self.lost),
            "files": [file.as_json() for file in self.files.values()],
            "marks": spans(self.marks),
        }

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "TopicArchive":
        def spans(of: dict[str, list[list[int]]]) -> dict[int, list[Span]]:
            return {int(partition): [(start, end) for start, end in found] for partition, found in of.items()}

        files = map(ArchivedFile.from_json, tree["files"])
        return cls(
            topic=str(tree["topic"]),
            topic_id=str(tree["id"]),
            since=int(tree["since"]),
            ranges=spans(tree["ranges"]),
            lost=spans(tree["lost"]),
            files={file.path: file for file in files},
            marks=spans(tree.get("marks", {})),  # none in what was written before there were any
        )


class Manifest:
    """The state of a lake at one moment; `commit` is how it moves on."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.number = 0
        self.checkpoint = 0
        self.entries: list[Entry] = []  # those after the checkpoint
        self._topics: dict[tuple[str, str], TopicArchive] = {}

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
        for archive in sorted(self._topics.values(), key=lambda one: (one.topic, one.since)):
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
        if self.number - self.checkpoint < CHECKPOINT_ENTRIES:
            return
        moved = [
            replace(archive, files={path: replace(file, staged=None) for path, file in archive.files.items()})
            for archive in self._topics.values()
        ]
        parted = any(file.limits for archive in moved for file in archive.files.values())
        tree = {
            "format": FORMAT if parted else FORMAT_BEFORE_PARTING,
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

    def _start_from(self, number: int) -> None:
        where = f"{FOLDER}/checkpoint-{number:010}.json"
        tree = decode_tree(where, self._lake.read(where))
        try:
            archives = [TopicArchive.from_json(topic) for topic in tree["topics"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ManifestError(f"the manifest file {where} is damaged ({error!r}): bring it back") from error
        self._topics = {(one.topic, one.topic_id): one for one in archives}
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
        self.entries.append(entry)
        self.number = entry.number

    def _advance(self, entry: Entry, taken: TopicRound) -> None:
        key = taken.topic, taken.topic_id
        archive = self._topics.setdefault(key, TopicArchive(*key, since=entry.number))
        for partition, offset in taken.parted.items():
            archive.part(partition, offset)
        for partition, spans in taken.lost.items():
            for span in spans:
                _add(archive.lost.setdefault(partition, []), span)
        for partition, span in taken.partitions.items():
            _add(archive.ranges.setdefault(partition, []), span)
        for partition, found in taken.epochs.items():
            marks = archive.marks.setdefault(partition, [])
            for mark in found:
                if marks and marks[-1][0] == mark[0]:
                    marks.pop()
                marks.append(mark)


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


def _add(spans: list[Span], span: Span) -> None:
    """Spans come in order; one that begins where the last ends makes it longer."""
    if spans and spans[-1][1] == span[0]:
        spans[-1] = (spans[-1][0], span[1])
    else:
        spans.append(span)
