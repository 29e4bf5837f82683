"""What opening a log came to."""

from typing import NamedTuple

from penstock.storage.log import Log
from penstock.storage.lost import Lost


class Recovered(NamedTuple):
    log: Log
    scanned_bytes: int
    cut_bytes: int  # torn or never completed: nothing of it was ever acknowledged as synced
    set_aside: list[str]  # files that could not be right, under their new names
    # Offsets that were durable and are gone: somebody took files, or the disk lied. Noted until `forget_lost`.
    lost: Lost | None = None
    # No recovery point was there, as for a new log: if there was one before, nothing tells how long that was.
    unvouched: bool = False
