"""Files that somebody took from the front or the middle of a log, by the segments that its recovery point names.

Where other replicas have the records, what is left behind the first hole is set aside, and the log is one that lost its
end: it leads nobody who has more, and copies the rest anew. Led by a log with a hole, they would delete the same
records, or their readers would pass over them. An only copy goes on with its holes, and starts where it started:
replicas that come back later lose nothing by it.

A replica that tells of a hole must not lead, so one that is none is never told. Whatever takes segments that a recovery
point names says so first, durably, in a name that stays as long as that point may be found:

    retention, DeleteRecords   `<offset>.start`, below which nothing is missed
    compaction                 `<base>-<end>.merged`, until the next checkpoint has named what is there now
    a cut, a log made anew     a recovery point in front of what goes
"""

from collections.abc import Sequence
from itertools import pairwise

from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.lost import Lost
from penstock.storage.segment import Segment


def damaged_segments(
    point: RecoveryPoint | None, start: int, merged: Sequence[tuple[int, int]], segments: Sequence[Segment]
) -> list[int]:
    """The base offsets of those that are missing or too short, of a log that starts at `start`."""
    if point is None or point.sealed is None or not segments:
        return []
    return _damaged(point, point.sealed, start, merged, segments)


def lacks_empty_end(
    point: RecoveryPoint, start: int, merged: Sequence[tuple[int, int]], segments: Sequence[Segment]
) -> bool:
    """Whether only the empty file is gone that the log would write to next: nothing is lost with it.

    Not where another one follows: then it went by right, for its offsets did not reach so far.
    """
    if point.sealed is None or point.position:
        return False
    is_last = all(segment.base_offset < point.segment for segment in segments)
    return is_last and not _damaged(point, point.sealed, start, merged, segments)


def _damaged(
    point: RecoveryPoint,
    sealed: Sequence[tuple[int, int]],
    start: int,
    merged: Sequence[tuple[int, int]],
    segments: Sequence[Segment],
) -> list[int]:
    # A point that was moved back still names what lay behind it.
    vouched = [
        *((base, size) for base, size in sealed if base < point.segment),
        (point.segment, point.position),
    ]
    ends = [*(base for base, _ in vouched[1:]), point.offset]
    sizes = {segment.base_offset: segment.size for segment in segments}
    return [
        base
        for (base, size), end in zip(vouched, ends, strict=True)
        if size
        and end > start
        and not any(base < merged_end and end > merged_base for merged_base, merged_end in merged)
        and sizes.get(base, -1) < size
    ]


def may_have_holes(
    point: RecoveryPoint | None,
    gaps: Sequence[tuple[int, int]] | None,
    segments: Sequence[Segment],
) -> bool:
    """Of a log whose recovery point is by an earlier version and names no segments: by what there is of them.

    Not by where it begins: that version's retention did not write it down, and a kill left it so.

    `gaps`: where one may come behind others without all offsets in between; None: anywhere, for compaction made them.
    """
    if point is None or point.sealed is not None:
        return False
    sealed = [segment for segment in segments if segment.base_offset <= point.segment]
    return gaps is not None and any(
        (end := before.next_offset()) != behind.base_offset and (end, behind.base_offset) not in gaps
        for before, behind in pairwise(sealed)
    )


def without_holes(
    segments: list[Segment],
    damaged: Sequence[int],
    start: int,
    point: RecoveryPoint | None,
    *,
    only_copy: bool,
) -> tuple[list[Segment], Lost | None, list[str]]:
    """The segments that stay; from where to where something is missing between them; names of what was set aside."""
    if not damaged or point is None:
        return segments, None, []
    if only_copy:
        left, holes = _with_holes(segments, damaged, start, point)
        return left, holes, []
    left = [segment for segment in segments if segment.base_offset <= damaged[0]]
    # Not deleted: all other replicas might have less.
    return left, None, [segment.set_aside() for segment in segments[len(left) :]]


def _with_holes(
    segments: Sequence[Segment], damaged: Sequence[int], start: int, point: RecoveryPoint
) -> tuple[list[Segment], Lost | None]:
    """With an empty segment for each hole; and from where to where something is missing before the last segment.

    What is torn is cut off. The empty ones are there for retention: what lies before a hole takes the log's start to
    it, and not beyond, or whole replicas would delete records for their neighbours' age.
    """
    holes: list[Lost] = []
    empty: list[Segment] = []
    # Others are those that a start before this one put into holes, and came to nothing.
    named = [
        s.base_offset
        for s in segments
        if s.size or s.base_offset in (*dict(point.sealed or ()), point.segment)
    ]
    for base in damaged:
        behind = min((other for other in named if other > base), default=None)
        if behind is not None:  # else it is the end, which a scan finds
            torn = next((s for s in segments if s.base_offset == base), None)
            # Where the file began, also if the log starts within it: it may be put back.
            begin = base if torn is None else cut(torn)
            holes.append((max(start, begin), behind))
            if begin < behind and not any(s.base_offset == begin for s in (*segments, *empty)):
                empty.append(segments[0].beside(begin))
    row = sorted((*segments, *empty), key=lambda segment: segment.base_offset)
    return row, (holes[0][0], holes[-1][1]) if holes else None


def cut(segment: Segment, limit: int | None = None) -> int:
    """Its end, without a batch that is not whole, and what reaches over `limit`."""
    position, end_offset = 0, segment.base_offset
    for at, header in segment.walk(0, segment.size, wait=True):
        if at + header.size_bytes > segment.size or (limit is not None and header.next_offset > limit):
            break
        position, end_offset = at + header.size_bytes, header.next_offset
    segment.file.truncate(position)
    segment.file.sync()
    segment.size = position
    return end_offset
