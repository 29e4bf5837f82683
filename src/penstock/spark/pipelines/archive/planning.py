"""What the next round takes: from what is archived and what the broker has, by arithmetic alone."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.entries import Span, TopicRound
from penstock.spark.pipelines.archive.manifest import Mark
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
# Each look is a request; the largest partitions decide how large the round gets.
LOOKS_MAX = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a round may get."""

    bytes_max: int = ROUND_BYTES
    rows_max: int = ROUND_ROWS


@dataclass(frozen=True, slots=True)
class Log:
    """One partition as the broker has it: offsets `earliest` to `latest` (not included)."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were gone before the archive came, or (`cut_off`) archived ones that the log no longer has."""

    at: TopicPartition
    start: int
    end: int
    cut_off: bool = False
    # The log has other records where these were archived, by their leader epochs.
    parted: bool = False

    def __str__(self) -> str:
        if self.parted:
            return (
                f"{self.at} is archived up to {self.end}, but the log has other records from offset {self.start} on "
                "(it lost its end, or an unclean election gave it another): they are not archived, and the broker "
                "is told so"
            )
        if self.cut_off:
            return (
                f"{self.at} ends at offset {self.start}, but is archived up to {self.end}: its end was cut off, "
                f"and what is written there until offset {self.end} is reached again cannot be archived"
            )
        return f"{self.at} has lost the offsets {self.start} to {self.end - 1} before they were archived"


@dataclass(frozen=True, slots=True)
class Plan:
    ranges: tuple[Range, ...]
    gaps: tuple[Gap, ...]
    ids: Mapping[str, str]
    # Offsets that are there but wait for a later round.
    left: int = 0
    # Partitions that are new to the archive and have nothing to read now: from here on nothing may get lost.
    empty: Mapping[TopicPartition, int] = field(default_factory=dict)
    record_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """At most: offsets of transaction markers and compacted records are counted, too."""
        return sum(part.size for part in self.ranges)

    @property
    def size_bytes(self) -> float:
        return sum(part.size * self.record_bytes.get(part.at, RECORD_BYTES) for part in self.ranges)

    @property
    def lost(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if not gap.cut_off)

    def __bool__(self) -> bool:
        return bool(self.ranges or self.lost)

    def topics(self, epochs: Mapping[TopicPartition, int] | None = None) -> tuple[TopicRound, ...]:
        """For the manifest; `epochs` of the last offset of each range."""
        of_topic: dict[str, dict[int, int]] = {}
        for at, epoch in (epochs or {}).items():
            of_topic.setdefault(at.topic, {})[at.partition] = epoch
        spans: dict[str, dict[int, Span]] = {}
        lost: dict[str, dict[int, tuple[Span, ...]]] = {}
        for gap in self.lost:
            lost.setdefault(gap.at.topic, {})[gap.at.partition] = ((gap.start, gap.end),)
        for at, start, end in self.ranges:
            spans.setdefault(at.topic, {})[at.partition] = (start, end)
        for at, start in self.empty.items():
            if at.topic in spans:
                spans[at.topic][at.partition] = (start, start)
        return tuple(
            TopicRound(
                topic, self.ids[topic], spans.get(topic, {}), lost.get(topic, {}), of_topic.get(topic, {})
            )
            for topic in sorted(spans.keys() | lost.keys())
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """What the broker says of where the archive stands, beside the ends of its logs."""

    # Where logs parted from what is archived of them.
    parted: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Logs that begin behind it, with nothing lost: the partition was retired and grown again.
    served: Collection[TopicPartition] = ()


def parting(marks: Sequence[Mark], epoch: int, end: int) -> int | None:
    """Where a log parted from what is archived, at the latest; None where it did not.

    `epoch` and `end` are the answer to the last mark's epoch: the largest epoch at or below it in the log, and where
    that ends. Of another epoch than the last mark's only the marks up to it are certain to be of the same log.
    """
    if end < 0:
        return None  # not even the beginning of the epoch is there: the log is shorter than the archive, and seen to be
    common = max((mark_end for mark_epoch, mark_end in marks if mark_epoch <= epoch), default=0)
    where = min(common, end)
    return where if where < marks[-1][1] else None


def gaps_and_starts(
    logs: Mapping[TopicPartition, Log],
    archived: Mapping[TopicPartition, int],
    standing: "Standing | None" = None,
) -> tuple[list[Gap], dict[TopicPartition, int]]:
    """Where each partition goes on.

    A topic that is new to the archive starts where its log does, and what was before was never promised to anybody:
    no gap. A partition that came to a known topic is archived from offset 0.
    """
    standing = standing or Standing()
    gaps, starts = [], {}
    known = {at.topic for at in archived}
    for at, log in sorted(logs.items()):
        start = archived.get(at, 0 if at.topic in known else log.earliest)
        if at in standing.parted:
            gaps.append(Gap(at, standing.parted[at], start, cut_off=True, parted=True))
            continue
        if start > log.latest:
            gaps.append(Gap(at, log.latest, start, cut_off=True))
            continue
        if start < log.earliest and at not in standing.served:
            gaps.append(Gap(at, start, log.earliest))
            start = log.earliest
        starts[at] = start
    return gaps, starts


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
    gaps, starts = gaps_and_starts(logs, archived, standing)
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
    return Plan(ranges, tuple(gaps), dict(ids), left, empty, sizes)


def _end(at: TopicPartition, log: Log, until: Mapping[TopicPartition, int] | None) -> int:
    # A partition that came later than the run began waits for the next one.
    return log.latest if until is None else min(log.latest, until.get(at, 0))


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
