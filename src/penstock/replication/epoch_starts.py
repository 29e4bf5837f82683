"""Where epochs began whose first records are compacted away, as a leader tells its follower (OffsetForLeaderEpoch).

    follower: epoch 3 ........ end 100 |            gap            | 160: a batch of epoch 7
    leader:   epoch 3 ..................... 120: epoch 5 .... 150: epoch 7

    where did 6 end?   "5, at 150"     so 7 began at 150, and before it was 5
    where did 4 end?   "3, at 120"     so 5 began at 120, and before it was 3, which we have

The log of a leader is not cut while it leads, so what it tells in its epoch stays true of what it sent.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.core.files import Files
from penstock.storage.epochs import EpochHistory
from penstock.storage.layout import EPOCHS_FILE

# To the leader: the largest epoch it knows at or below this one, and where that ended. PeerError: it does not tell.
EndOfEpoch = Callable[[int], Awaitable[tuple[int, int]]]


async def starts_within(end_of: EndOfEpoch, gap: range, epoch: int, latest: int) -> list[tuple[int, int]]:
    """The epochs that began within the gap, of which `epoch` is the last, behind our `latest`."""
    starts: list[tuple[int, int]] = []
    next_start = gap.stop
    while epoch > latest:
        # Epoch 0 has none before it. A leader that knows nothing of the epoch either has nothing better to tell.
        before, start = await end_of(epoch - 1) if epoch > 0 else (-1, gap.start)
        start = min(max(start, gap.start), gap.stop) if start >= 0 else gap.stop
        if starts and start >= next_start:
            break  # it knows of none so early, and names the epoch that it was asked for
        starts.insert(0, (epoch, start))
        if start <= gap.start:
            break
        epoch, next_start = before, start
    return starts


def save_starts(files: Files, directory: Path, epochs: EpochHistory) -> None:
    """The epoch file ahead of the log: recovery goes by it where it finds the batches."""
    files.write_atomically(directory / EPOCHS_FILE, epochs.dump())
