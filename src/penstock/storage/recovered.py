"""What opening a log came to."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.log import Log


class Recovered(NamedTuple):
    log: Log
    scanned_bytes: int
    cut_bytes: int  # torn or never completed: nothing of it was ever acknowledged as synced
    set_aside: list[str]  # files that could not be right, under their new names
    # Offsets that were durable and are gone, the second not included: somebody took files, or the disk lied.
    lost: tuple[int, int] | None = None
    # No recovery point was there, as for a new log: if there was one before, nothing tells how long that was.
    unvouched: bool = False


def held_against(
    recovered: Recovered, point: RecoveryPoint | None, starts: Sequence[int], *, empty: bool
) -> Recovered:
    """Whether the log has what its recovery point vouched for; `starts` as they were written down.

    `empty`: no segment was there. The new log then begins behind the point, which does not bring anything back.
    """
    if point is None:
        return recovered._replace(unvouched=True)
    if recovered.lost is not None:
        return recovered
    begin = max([point.start_offset, *starts])
    if not empty:
        begin = max(begin, recovered.log.end_offset)
    return recovered._replace(lost=(begin, point.offset)) if begin < point.offset else recovered
