"""From offsets to tasks: how much of what is there a batch takes, and how its ranges are cut.

Pure arithmetic; the driver runs it once per batch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.client.raw import TopicPartition


class Range(NamedTuple):
    """Offsets `start` to `end` (not included) of one partition: what one task reads."""

    at: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def limit_rows(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int
) -> dict[TopicPartition, int]:
    """Ends so that about `rows_max` offsets are taken, each partition its share, as Spark's own source does it.

    A partition with anything to read gets at least one offset, so that a small one does not starve beside
    large ones; the sum may exceed the limit by one per partition for that.
    """
    sizes = {at: max(0, until - start[at]) for at, until in end.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(end)
    limited = {}
    for at, until in end.items():
        share = rows_max * sizes[at] / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        limited[at] = min(until, start[at] + taken) if sizes[at] else until
    return limited


def split(
    ranges: Sequence[Range], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Cut ranges until none is longer than `records_max` and there are at least `partitions_min` of them.

    Without either, one task per Kafka partition. A range is never cut into more pieces than it has offsets,
    so a small batch can stay below `partitions_min`.
    """
    kept = [part for part in ranges if part.size]
    pieces = [1 if records_max is None else math.ceil(part.size / records_max) for part in kept]
    if partitions_min is not None:
        _raise_to(pieces, [part.size for part in kept], partitions_min)
    return [cut for part, count in zip(kept, pieces, strict=True) for cut in _cut(part, count)]


def _raise_to(pieces: list[int], sizes: list[int], wanted: int) -> None:
    """One more piece at a time for whoever has the longest ones: even pieces, and exactly as many as wanted."""
    while sum(pieces) < wanted:
        longest = max(range(len(pieces)), key=lambda index: sizes[index] / pieces[index], default=None)
        if longest is None or sizes[longest] <= pieces[longest]:
            return
        pieces[longest] += 1


def _cut(part: Range, count: int) -> list[Range]:
    edges = [part.start + part.size * number // count for number in range(count + 1)]
    return [Range(part.at, edges[number], edges[number + 1]) for number in range(count)]
