"""Segments that somebody put into a log, over others: those of another broker begin at other offsets.

Below the recovery point nothing is scanned, and a reader looks for an offset in the last segment that begins before it:
one that is put between two others, and is short, hides what the one before it has. So it is set aside, and told of.

What belongs to the log is never taken for that. The recovery point names its segments; compaction gives the one that
takes the place of others the name of the first of them; what a cut or a crash leaves lies behind the point. And the
files that went from a log, put back where they were, overlap nothing.
"""

from collections.abc import Sequence

from penstock.core.files import Files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.scan import remove
from penstock.storage.segment import Segment


def without_overlaps(point: RecoveryPoint | None, segments: list[Segment]) -> tuple[list[Segment], list[str]]:
    """The segments that stay, and the new names of those that were set aside."""
    if point is None or point.sealed is None:  # a scan sees all of it, or nobody knows which are its own
        return segments, []
    named = {base for base, _ in point.sealed}
    strangers = [s for s in segments if s.base_offset < point.segment and s.base_offset not in named]
    if not strangers:
        return segments, []
    left: list[Segment] = []
    aside: list[str] = []
    for number, segment in enumerate(segments):
        if segment in strangers and _overlaps(segment, left, segments[number + 1 :], strangers):
            aside.append(segment.set_aside())
        else:
            left.append(segment)
    return left, aside


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


def _overlaps(
    stranger: Segment, before: Sequence[Segment], behind: Sequence[Segment], strangers: Sequence[Segment]
) -> bool:
    """Blocks: reads where the one before it ends, and where it ends itself."""
    if before and before[-1].next_offset() > stranger.base_offset:
        return True
    own = next((segment for segment in behind if segment not in strangers), None)
    return own is not None and stranger.next_offset() > own.base_offset
