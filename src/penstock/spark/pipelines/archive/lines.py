"""Lines of records: what is archived of a partition is one line, and beside it those that counted once.

A log gives offsets to other records, and may give them back: a replica that was away leads again. So nothing of what is
archived is ever given up. What counted and no longer does is a branch: it is the same as what counts up to its fork,
and has its own records behind.

A record is what its offset and its leader epoch say: an epoch has one leader. Two lines that have one record in
common have everything before it in common, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.spark.pipelines.archive.entries import UNKNOWN_EPOCH, Mark, Span


@dataclass(slots=True)
class Line:
    ranges: list[Span] = field(default_factory=list)
    lost: list[Span] = field(default_factory=list)
    # Leader epochs, each with its end; UNKNOWN_EPOCH for what was archived of brokers that did not tell.
    marks: list[Mark] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Everything below is archived, or known to be lost."""
        return max((end for spans in (self.ranges, self.lost) for _, end in spans), default=0)

    @property
    def epochs_max(self) -> int:
        return max((epoch for epoch, _ in self.marks), default=UNKNOWN_EPOCH)

    def epoch_before(self, offset: int) -> int | None:
        """Of the record before an offset, where it is known."""
        epoch = next((epoch for epoch, end in self.marks if end >= offset), UNKNOWN_EPOCH)
        return epoch if offset and epoch != UNKNOWN_EPOCH else None

    def take(self, span: Span, marks: Sequence[Mark] = (), lost: Sequence[Span] = ()) -> None:
        """`lost`: what a log lacked between records that it had."""
        start, behind = span
        for low, high in lost:
            if start < low < high <= behind:
                add(self.ranges, (start, low))
            start = max(start, min(high, behind))
        if start < behind or span[0] == behind:
            add(self.ranges, (start, behind))
        if marks and (self.marks[-1][1] if self.marks else 0) < span[0]:
            self.marks.append((UNKNOWN_EPOCH, span[0]))
        for mark in marks:
            if self.marks and self.marks[-1][0] == mark[0]:
                self.marks.pop()
            self.marks.append(mark)

    def lose(self, span: Span, but: Iterable[Span] = ()) -> int:
        """What it has of a span is lost, `but` for these; how many offsets that is."""
        before = sum(end - start for start, end in self.ranges)
        for part in without(span, but):
            self._lose(*part)
        return before - sum(end - start for start, end in self.ranges)

    def _lose(self, low: int, high: int) -> None:
        ranges, lost = [], list(self.lost)
        for start, end in self.ranges:
            first, behind = max(start, low), min(end, high)
            if first >= behind:
                ranges.append((start, end))
                continue
            lost.append((first, behind))
            ranges += [part for part in ((start, first), (behind, end)) if part[0] < part[1]]
        self.ranges, self.lost = ranges, []
        for part in sorted(lost):
            add(self.lost, part)

    def cut(self, offset: int) -> "Line":
        """What lies below an offset, which is where it goes on."""

        def below(spans: list[Span]) -> list[Span]:
            return [(start, min(end, offset)) for start, end in spans if start < offset]

        ranges, marks = below(self.ranges), [mark for mark in self.marks if mark[1] <= offset]
        add(ranges, (offset, offset))
        # What is left of an epoch that goes on behind the offset is of it, too.
        later = [epoch for epoch, end in self.marks if end > offset][:1]
        if (marks[-1][1] if marks else 0) < offset:
            marks += [(epoch, offset) for epoch in later]
        return Line(ranges, below(self.lost), marks)

    def as_json(self) -> dict[str, Any]:
        return {"ranges": self.ranges, "lost": self.lost, "marks": self.marks}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        return cls(*([(start, end) for start, end in tree[name]] for name in ("ranges", "lost", "marks")))


@dataclass(slots=True)
class Branch:
    """A line that counted until an entry of this number, and is the same as the one that counts up to `fork`."""

    number: int
    fork: int
    line: Line
    # The forks of the branches that there were, when this one still counted: forks only ever get lower, and two that
    # came to the same place no longer tell what their branches share.
    others: Mapping[int, int] = field(default_factory=dict)

    def common(self, other: "Branch") -> int:
        """Up to where two branches of one line are the same."""
        earlier, later = sorted((self, other), key=lambda branch: branch.number)
        start = later.others.get(earlier.number)
        if start is None:  # of a version that did not note it
            if self.fork != other.fork:
                return min(self.fork, other.fork)
            start = self.fork
        return common(self.line.marks, other.line.marks, start)

    def as_json(self) -> dict[str, Any]:
        others = {str(number): fork for number, fork in self.others.items()}
        return {"number": self.number, "fork": self.fork, "others": others, **self.line.as_json()}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        others = {int(number): int(fork) for number, fork in tree.get("others", {}).items()}
        return cls(int(tree["number"]), int(tree["fork"]), Line.from_json(tree), others)


def common(marks: Sequence[Mark], other: Sequence[Mark], start: int) -> int:
    """Up to where two lines are the same that are the same up to `start`, by the epochs that are known."""
    while True:
        mine = next((mark for mark in marks if mark[1] > start), None)
        theirs = next((mark for mark in other if mark[1] > start), None)
        if mine is None or theirs is None or mine[0] != theirs[0] or mine[0] == UNKNOWN_EPOCH:
            return start
        start = min(mine[1], theirs[1])


def without(span: Span, others: Iterable[Span]) -> list[Span]:
    """What is left of a span."""
    left, (start, end) = [], span
    for low, high in sorted(others):
        if start < min(low, end):
            left.append((start, min(low, end)))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def add(spans: list[Span], span: Span) -> None:
    """Spans come in order; one that begins where the last ends makes it longer."""
    if spans and spans[-1][1] == span[0]:
        spans[-1] = (spans[-1][0], span[1])
    else:
        spans.append(span)
