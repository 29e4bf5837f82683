"""Offsets that a log has no batch for, between batches that it has.

Where nothing compacts a topic every offset between the start and the end of its log is covered by a batch: one whose
records are all gone for readers (aborted, control records) is sent all the same. So a hole is a file that somebody
took from the log, or its end that a disk lost before it went on. A reader who passes over it takes what is missing
here for what never was, though another replica may have it.

A topic that was compacted once and no longer is has such holes, too, and nobody can tell them apart.
"""

from collections.abc import Iterator

from penstock.client.raw import TopicPartition
from penstock.records.batch import read_header
from penstock.spark.planning import Range

# [first offset, the one behind the last]
Span = tuple[int, int]


class Walk:
    """Over the batches of a range, in the order of the log."""

    def __init__(self, part: Range) -> None:
        self._position = part.start
        self._end = part.end

    def over(self, records: memoryview) -> Iterator[Span]:
        """The holes before and between these batches."""
        at = 0
        while at < len(records):
            header = read_header(records, at)
            at += header.size_bytes
            yield from self._up_to(header.base_offset)
            self._position = max(self._position, header.next_offset)

    def rest(self) -> Iterator[Span]:
        """The hole at the end of a range that was read to its end."""
        yield from self._up_to(self._end)

    def _up_to(self, offset: int) -> Iterator[Span]:
        offset = min(offset, self._end)
        if self._position < offset:
            hole = self._position, offset
            self._position = offset
            yield hole


def told(at: TopicPartition, hole: Span) -> str:
    return (
        f"{at} has no records for the offsets {hole[0]} to {hole[1] - 1}, though nothing compacts it: files of its "
        "leader's log are gone, or it was compacted once"
    )
