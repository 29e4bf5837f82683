"""Files that somebody put into a log: of another broker, which begin at other offsets, or what it had lost.

Below the recovery point nothing is scanned, and a reader looks for an offset in the last segment that begins before it:
one that is put between two others, and is short, hides what the one before it has. So it is set aside, and told of.

What belongs to the log is never taken for that. The recovery point names its segments; compaction gives the one that
takes the place of others the name of the first of them; what a cut or a crash leaves lies behind the point. And the
files that went from a log, put back where they were, overlap nothing: or they have more than the point vouched for when
they went, whose offsets others have got since. That is cut off, as is a batch that is not whole.
"""

import logging
from collections.abc import Sequence

from penstock.core.files import Files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.holes import cut
from penstock.storage.scan import remove
from penstock.storage.segment import Segment

logger = logging.getLogger(__name__)


def without_overlaps(
    files: Files,
    point: RecoveryPoint | None,
    start: int,
    merged: Sequence[tuple[int, int]],
    segments: list[Segment],
) -> tuple[list[Segment], list[str]]:
    """The segments that stay, and the new names of those that were set aside."""
    if point is None or point.sealed is None:  # a scan sees all of it, or nobody knows which are its own
        return segments, []
    named, exchanged = dict(point.sealed), dict(merged)
    put_here = [
        s
        for s in segments
        if s.base_offset < point.segment
        and s.size > named.get(s.base_offset, 0)
        and s.base_offset not in exchanged
    ]
    if not put_here:
        return segments, []
    strangers = [s for s in put_here if s.base_offset not in named]
    own = [s for s in segments if (s.size or s.base_offset >= point.segment) and s not in strangers]
    left: list[Segment] = []
    aside: list[str] = []
    for number, segment in enumerate(segments):
        if segment in strangers and segment.next_offset() <= start:
            remove(files, segment)  # what an emptied log had before: retention would go from it over the hole
            continue
        limit = next((s.base_offset for s in own if s.base_offset > segment.base_offset), None)
        if segment in strangers and _overlaps(segment, left, limit):
            aside.append(segment.set_aside())
            continue
        left.append(segment)
        if segment in put_here:
            left += _taken_in(segment, limit, segments[number + 1 :])
    return sorted(left, key=lambda segment: segment.base_offset), aside


def without_filled_holes(files: Files, point: RecoveryPoint | None, segments: list[Segment]) -> list[Segment]:
    """Without empty ones that stood for what a segment had lost (`holes`), where that was put back whole."""
    left: list[Segment] = []
    for segment in segments:
        if point is not None and not segment.size and segment.base_offset < point.segment and left:
            before = left[-1]
            if before.size and before.next_offset() > segment.base_offset:
                remove(files, segment)
                continue
        left.append(segment)
    return left


def _overlaps(stranger: Segment, before: Sequence[Segment], limit: int | None) -> bool:
    """Blocks: reads where the one before it ends, and where it ends itself."""
    last = next((segment for segment in reversed(before) if segment.size), None)
    if last is not None and last.next_offset() > stranger.base_offset:
        return True
    return limit is not None and stranger.next_offset() > limit


def _taken_in(segment: Segment, limit: int | None, behind: Sequence[Segment]) -> list[Segment]:
    """An empty one for what is still missing between it and the next, as in any hole (`holes`)."""
    size = segment.size
    end_offset = cut(segment, limit)
    if segment.size < size:
        said = "%s: %d bytes were cut off that do not fit into the log: it ends at offset %d now"
        logger.error(said, segment.paths()[0], size - segment.size, end_offset)
    follows = min((s.base_offset for s in behind if s.base_offset >= end_offset), default=end_offset)
    return [segment.beside(end_offset)] if segment.base_offset < end_offset < follows else []
