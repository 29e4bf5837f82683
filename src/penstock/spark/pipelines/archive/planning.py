"""What the next round takes: from what is archived and what the broker has, by arithmetic alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.entries import Mark, Span, TopicRound
from penstock.spark.pipelines.archive.standing import Log, Standing
from penstock.spark.planning import Range, limit_rows

# A round of this much takes a quarter of a minute on two cores: little is lost when it fails.
ROUND_BYTES = 1_000_000_000
ROUND_ROWS = 20_000_000
# What one task writes, and so about the size of a file before compression.
TASK_BYTES = 128_000_000
# Less than this is not worth another task, and another file.
TASK_BYTES_MIN = 16_000_000
# Taken for a partition whose records nobody has looked at yet.
RECORD_BYTES = 1_000.0
# As large as most brokers let a batch get.
RECORD_BYTES_LARGE = 1_000_000.0
# What one entry notes of a partition: one that was compacted once may have a hole for every other record.
HOLES_MAX = 10_000
GAPS_TOLD_MAX = 10
# Each look is a request; the largest partitions decide how large the round gets.
LOOKS_MAX = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a round may get."""

    bytes_max: int = ROUND_BYTES
    rows_max: int = ROUND_ROWS


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were gone before the archive came."""

    at: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.at} has lost the offsets {self.start} to {self.end - 1} before they were archived"


@dataclass(frozen=True, slots=True)
class Parted:
    """A log that is another one from `start` on than what is archived of it up to `end`."""

    at: TopicPartition
    start: int
    end: int
    # Up to `start` it is one that counted before.
    branch: int | None = None

    def __str__(self) -> str:
        if self.branch is not None:
            return (
                f"{self.at} has records again that it had lost, up to offset {self.start} (a replica that was away "
                "leads it): what is archived of them counts again, and what came in their place no longer"
            )
        return (
            f"{self.at} is archived up to {self.end}, but its log is another one from offset {self.start} on (it lost "
            "its end, or an unclean election gave it another): it is archived again from there; what is archived of "
            "the old one stays in its files, but no longer counts"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    ranges: tuple[Range, ...]
    gaps: tuple[Gap, ...]
    ids: Mapping[str, str]
    parted: tuple[Parted, ...] = ()
    # Offsets that are there but wait for a later round.
    left: int = 0
    # Partitions that are new to the archive and have nothing to read now: from here on nothing may get lost.
    empty: Mapping[TopicPartition, int] = field(default_factory=dict)
    record_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)
    # Where the archive stands in partitions that were grown again: between there and their logs nothing ever was.
    before: Mapping[TopicPartition, int] = field(default_factory=dict)
    # The leader epochs in which all of this was found out.
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """At most: offsets of transaction markers and compacted records are counted, too."""
        return sum(part.size for part in self.ranges)

    @property
    def size_bytes(self) -> float:
        return sum(part.size * self.record_bytes.get(part.at, RECORD_BYTES) for part in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges or self.gaps or self.parted)

    def topics(
        self, marks: Mapping[TopicPartition, Sequence[Mark]] | None = None, cluster: str = ""
    ) -> tuple[TopicRound, ...]:
        """For the manifest; `marks`: the leader epochs of each range; `cluster`: whose topics they are."""
        epochs: dict[str, dict[int, tuple[Mark, ...]]] = {}
        for at, found in (marks or {}).items():
            epochs.setdefault(at.topic, {})[at.partition] = tuple(found)
        parted: dict[str, dict[int, int]] = {}
        branches: dict[str, dict[int, int]] = {}
        for parting in self.parted:
            parted.setdefault(parting.at.topic, {})[parting.at.partition] = parting.start
            if parting.branch is not None:
                branches.setdefault(parting.at.topic, {})[parting.at.partition] = parting.branch
        spans: dict[str, dict[int, Span]] = {}
        lost: dict[str, dict[int, tuple[Span, ...]]] = {}
        for gap in self.gaps:
            of_topic = lost.setdefault(gap.at.topic, {})
            of_topic[gap.at.partition] = (*of_topic.get(gap.at.partition, ()), (gap.start, gap.end))
        for at, start, end in self.ranges:
            spans.setdefault(at.topic, {})[at.partition] = (self.before.get(at, start), end)
        for at, start in self.empty.items():
            if at.topic in spans:
                spans[at.topic][at.partition] = (start, start)
        return tuple(
            TopicRound(
                topic,
                self.ids[topic],
                spans.get(topic, {}),
                lost.get(topic, {}),
                epochs.get(topic, {}),
                parted.get(topic, {}),
                branches.get(topic, {}),
                cluster,
            )
            for topic in sorted(spans.keys() | lost.keys() | parted.keys())
        )

    def with_holes(self, holes: Mapping[TopicPartition, Sequence[Span]]) -> "Plan":
        """These have no records; of too many in one partition the rest waits for a later round."""
        gaps, ends = list(self.gaps), {}
        for at, found in sorted(holes.items()):
            gaps += [Gap(at, start, end) for start, end in found[:HOLES_MAX]]
            if len(found) > HOLES_MAX:
                ends[at] = found[HOLES_MAX - 1][1]
        ranges = tuple(Range(at, start, ends.get(at, end)) for at, start, end in self.ranges)
        left = self.left + self.rows - sum(part.size for part in ranges)
        return replace(self, ranges=ranges, gaps=tuple(gaps), left=left)


def gaps_and_starts(
    logs: Mapping[TopicPartition, Log],
    archived: Mapping[TopicPartition, int],
    standing: Standing | None = None,
) -> tuple[list[Gap], list[Parted], dict[TopicPartition, int]]:
    """Where each partition goes on; one whose log parted from the archive goes back to there.

    A topic that is new to the archive starts where its log does, and what was before was never promised to anybody:
    no gap. A partition that came to a known topic is archived from where its log began. One that left is no longer
    there to be read: what is not archived of it is a gap.
    """
    standing = standing or Standing()
    gaps, parted, starts = [], [], {}
    known = {at.topic for at in archived}
    for at, log in sorted(logs.items()):
        start = archived.get(at, log.first if at.topic in known else log.earliest)
        if at in standing.parted:
            parted.append(Parted(at, standing.parted[at], start, standing.branches.get(at)))
            start = standing.parted[at]
        if start < log.earliest and at not in standing.served:
            gaps.append(Gap(at, start, log.earliest))
        starts[at] = max(start, log.earliest)
    gaps += [Gap(at, archived[at], end) for at, end in sorted(standing.ended.items()) if archived[at] < end]
    return gaps, parted, starts


def plan(
    logs: Mapping[TopicPartition, Log],
    archived: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    *,
    record_bytes: Mapping[TopicPartition, float] | None = None,
    bounds: Bounds | None = None,
    until: Mapping[TopicPartition, int] | None = None,
    standing: Standing | None = None,
) -> Plan:
    """`until`: no further than this, for a run that ends where the topics ended when it began."""
    bounds = bounds or Bounds()
    sizes = dict(record_bytes or {})
    standing = standing or Standing()
    gaps, parted, starts = gaps_and_starts(logs, archived, standing)
    before = {at: standing.parted.get(at, archived[at]) for at in standing.served}
    ends = {at: max(start, _end(at, logs[at], until)) for at, start in starts.items()}
    taken = limit_rows(starts, ends, bounds.rows_max)
    total = sum((taken[at] - starts[at]) * sizes.get(at, RECORD_BYTES) for at in starts)
    if total > bounds.bytes_max:
        share = bounds.bytes_max / total
        # At least one offset each: a partition never starves beside large ones.
        taken = {at: starts[at] + math.ceil((end - starts[at]) * share) for at, end in taken.items()}
    ranges = tuple(Range(at, starts[at], end) for at, end in taken.items() if end > starts[at])
    left = sum(ends[at] - end for at, end in taken.items())
    empty = {at: start for at, start in starts.items() if at not in archived and taken[at] == start}
    return Plan(ranges, tuple(gaps), dict(ids), tuple(parted), left, empty, sizes, before)


def _end(at: TopicPartition, log: Log, until: Mapping[TopicPartition, int] | None) -> int:
    # A partition that came later than the run began waits for the next one.
    return log.latest if until is None else min(log.latest, until.get(at, 0))


def noted_as_lost(gaps: Sequence[Gap]) -> list[str]:
    """In words; of a log with very many holes only the first."""
    lines, ordered = [], sorted(gaps, key=lambda gap: (gap.at, gap.start))
    for at, group in groupby(ordered, key=lambda gap: gap.at):
        found = list(group)
        lines += [f"{gap}: noted as lost" for gap in found[:GAPS_TOLD_MAX]]
        if len(found) > GAPS_TOLD_MAX:
            lines.append(f"{at} has {len(found) - GAPS_TOLD_MAX} more such holes: noted as lost")
    return lines


def rows_per_task(plan: Plan, cores: int) -> int:
    """So that tasks are about TASK_BYTES, and a round that is worth it keeps every core busy."""
    if not plan.rows:
        return 1
    mean = max(1.0, plan.size_bytes / plan.rows)
    wanted = min(TASK_BYTES, max(TASK_BYTES_MIN, plan.size_bytes / max(1, cores)))
    return max(1, math.ceil(wanted / mean))


def tasks_wanted(plan: Plan, cores: int) -> int:
    """How many tasks write: small partitions share one, or a round of a thousand would leave a thousand files."""
    by_size = math.ceil(plan.size_bytes / TASK_BYTES_MIN)
    return max(1, min(by_size, max(cores, math.ceil(plan.size_bytes / TASK_BYTES))))


def worth_a_look(
    logs: Mapping[TopicPartition, Log], starts: Mapping[TopicPartition, int], bounds: Bounds
) -> dict[TopicPartition, int]:
    """The starts of partitions with so many records that the round might get too large if they are large ones."""
    waiting = {at: logs[at].latest - start for at, start in starts.items()}
    rows_min = max(1.0, bounds.bytes_max / RECORD_BYTES_LARGE / max(1, len(starts)))
    largest = sorted(waiting, key=lambda at: waiting[at], reverse=True)[:LOOKS_MAX]
    return {at: starts[at] for at in largest if waiting[at] >= rows_min}
