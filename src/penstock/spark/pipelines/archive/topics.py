"""What is archived of one incarnation of a topic, and which rows of its files count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.spark.pipelines.archive.entries import (
    FORMAT,
    FORMAT_BEFORE_BRANCHES,
    FORMAT_BEFORE_PARTING,
    UNKNOWN_EPOCH,
    ArchivedFile,
    Mark,
    Span,
)
from penstock.spark.pipelines.archive.lines import Branch, Line


@dataclass(slots=True)
class TopicArchive:
    """A topic that is deleted and made anew is another one."""

    topic: str
    topic_id: str
    since: int  # the entry that it came with: a later incarnation has a larger one
    # Per partition what counts.
    lines: dict[int, Line] = field(default_factory=dict)
    # And what counted once, and may again.
    branches: dict[int, list[Branch]] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)
    # Rows that were lost with files, and whose offsets are not in `lost`: other files have some between them.
    lost_among: int = 0
    # The id of the cluster that it is archived from; empty where no entry has said so yet.
    cluster: str = ""

    def line(self, partition: int) -> Line:
        return self.lines.setdefault(partition, Line())

    @property
    def ranges(self) -> dict[int, list[Span]]:
        return {at: line.ranges for at, line in self.lines.items() if line.ranges}

    @property
    def lost(self) -> dict[int, list[Span]]:
        return {at: line.lost for at, line in self.lines.items() if line.lost}

    @property
    def marks(self) -> dict[int, list[Mark]]:
        """Per partition leader epochs, each with its end in what counts: by them a log is recognised that gave
        archived offsets to other records."""
        return {at: line.marks for at, line in self.lines.items() if line.marks}

    @property
    def next_offsets(self) -> dict[int, int]:
        """Per partition: everything below is archived, or known to be lost."""
        return {at: line.end for at, line in sorted(self.lines.items()) if line.ranges or line.lost}

    @property
    def epochs(self) -> dict[int, int]:
        """Of the last archived records, where they are known."""
        found = {at: line.epoch_before(line.end) for at, line in self.lines.items()}
        return {at: epoch for at, epoch in found.items() if epoch is not None}

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    @property
    def lost_offsets(self) -> int:
        return self.lost_among + sum(end - start for spans in self.lost.values() for start, end in spans)

    def turn(self, number: int, partition: int, offset: int, branch: int | None = None) -> None:
        """From now on counts what a branch has below an offset, or what counts already; an entry says so."""
        old, branches = self.line(partition), self.branches.pop(partition, [])
        chosen = next((former for former in branches if former.number == branch), None)
        assert branch is None or chosen is not None, f"{self.topic}-{partition} has no branch {branch}"
        fork = offset if chosen is None else min(offset, chosen.fork)
        forks = {
            former.number: min(
                offset, former.fork if chosen is None or former is chosen else former.common(chosen)
            )
            for former in branches
        }
        if chosen is not None:
            forks[chosen.number] = offset
        others = {former.number: former.fork for former in branches}
        for former in branches:
            former.fork = forks[former.number]
        self.lines[partition] = (old if chosen is None else chosen.line).cut(offset)
        if old.end > fork:
            branches.append(Branch(number, fork, old, others))
            self._move(partition, None, number, fork)
        for former in branches:
            if former.fork >= former.line.end:
                # All of it counts again.
                self._move(partition, former.number, None, 0)
        left = [former for former in branches if former.fork < former.line.end]
        if left:
            self.branches[partition] = left
        limits = {former.number: former.fork for former in left}
        for path, file in self.files.items():
            of = file.branches.get(partition)
            limited = file.below(partition, None if of is None else limits[of])
            self.files[path] = limited if partition in limited.held else limited.on(partition, None)

    def give_up(self, paths: Iterable[str]) -> None:
        """Files are lost: so is what they held, also of branches, which may count again.

        Offsets that other files span as well (of another hour, where clocks differ) are perhaps in those. How many rows
        are lost among them is known, and which is not.
        """
        given_up = [self.files.pop(path) for path in paths]
        found = sum(self._lose(file) for file in given_up)
        self.lost_among += max(0, sum(file.rows for file in given_up) - found)

    def _lose(self, file: ArchivedFile) -> int:
        """How many offsets no longer count."""
        found = 0
        for partition in file.offsets.keys() | file.held.keys():
            first, last = file.held.get(partition) or file.offsets[partition]
            branches = self.branches.get(partition, [])
            number = file.branches.get(partition)
            of = next((each for each in branches if each.number == number), None)
            others = list(self.files.values())
            if partition in file.offsets:
                counting = [other.offsets[partition] for other in others if partition in other.offsets]
                span = first, file.offsets[partition][1] + 1
                found += self.line(partition).lose(span, map(_behind, counting))
            beside = [other for other in others if other.branches.get(partition) == number]
            held = [other.held.get(partition) or other.offsets.get(partition) for other in beside]
            for branch in branches:
                shared = branch.fork if of is None else last + 1 if branch is of else branch.common(of)
                branch.line.lose((first, min(last + 1, shared)), (_behind(each) for each in held if each))
        return found

    def _move(self, partition: int, source: int | None, target: int | None, start: int) -> None:
        """Files with rows from `start` on are of another branch now (None: of what counts)."""
        for path, file in self.files.items():
            _, last = file.held.get(partition) or file.offsets.get(partition, (0, -1))
            if last >= start and file.branches.get(partition) == source:
                self.files[path] = file.on(partition, target)

    @property
    def format(self) -> int:
        """What a version must know that reads it."""
        marks = [mark for line in self.lines.values() for mark in line.marks]
        if self.branches or any(epoch == UNKNOWN_EPOCH for epoch, _ in marks):
            return FORMAT
        limited = any(file.limits for file in self.files.values())
        return FORMAT_BEFORE_BRANCHES if limited else FORMAT_BEFORE_PARTING

    def as_json(self) -> dict[str, Any]:
        def spans(of: Mapping[int, list[Span]]) -> dict[str, list[Span]]:
            return {str(partition): found for partition, found in of.items()}

        tree: dict[str, Any] = {
            "topic": self.topic,
            "id": self.topic_id,
            "since": self.since,
            "ranges": spans(self.ranges),
            "lost": spans(self.lost),
            "files": [file.as_json() for file in self.files.values()],
            "marks": spans(self.marks),
        }
        if self.lost_among:
            tree["lost_among"] = self.lost_among
        if self.cluster:
            tree["cluster"] = self.cluster
        if self.branches:
            tree["branches"] = {
                str(at): [branch.as_json() for branch in branches] for at, branches in self.branches.items()
            }
        return tree

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "TopicArchive":
        lines: dict[int, Line] = {}
        # No marks in what was written before there were any.
        for name in ("ranges", "lost", "marks"):
            for partition, found in tree.get(name, {}).items():
                line = lines.setdefault(int(partition), Line())
                getattr(line, name).extend((start, end) for start, end in found)
        files = map(ArchivedFile.from_json, tree["files"])
        return cls(
            topic=str(tree["topic"]),
            topic_id=str(tree["id"]),
            since=int(tree["since"]),
            lines=lines,
            branches={
                int(at): [Branch.from_json(branch) for branch in branches]
                for at, branches in tree.get("branches", {}).items()
            },
            files={file.path: file for file in files},
            lost_among=int(tree.get("lost_among", 0)),
            cluster=str(tree.get("cluster", "")),
        )


def _behind(span: Span) -> Span:
    """From the first and the last offset to the one behind."""
    return span[0], span[1] + 1
