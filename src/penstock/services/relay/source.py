"""What a pump moves: the protocol that sources of a relay follow, and what all of them make ready in the same way.

A source numbers its records: 0, 1, 2, …, in the order in which they are to be moved, for ever the same under one leader
epoch of its own. The target remembers the last number, and the epoch; nothing of it is kept at the source.

    RETIRED    a retired partition (`retired`): the distance from its limit
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.records.batch import BatchHeader
from penstock.records.relay import (
    RelayKind,
    RelayPlace,
    RelaySource,
    position_batch,
    stamp_relayed,
)
from penstock.replication.limits import DataWaiter


class Chunk(NamedTuple):
    batches: bytearray
    next_number: int
    place: RelayPlace | None  # the target's, when it has them
    lost: list[range]  # numbers that it has not, and cannot get any more


class Source(Protocol):
    name: str  # for people

    @property
    def epoch(self) -> int:
        """Of its leader, here."""

    @property
    def limit(self) -> int:
        """The first number that is not there yet, or may not be moved yet: not committed, or in an open transaction."""

    def knows_target(self) -> bool:
        """Whether what the target was last known to have still counts. If not, it is asked again."""

    def asks_target(self) -> None:
        """The target is about to be asked how far it is."""

    def forget_target(self) -> None:
        """What the target was known to have may not be so any more: nothing counts as moved until it has told again."""

    async def resume(self, places: Sequence[RelayPlace]) -> tuple[int, RelayPlace | None]:
        """Where to go on, if this is what the target has, and as what place it is to be counted."""

    def resumed(self, number: int) -> None:
        """The target has answered: it has all below `number`."""

    async def read(self, number: int, place: RelayPlace | None) -> Chunk:
        """What comes next, made ready for a target that is at `place`."""

    def moved(self, number: int) -> None:
        """All below it is committed in the target: it may be deleted here."""

    def tell_lost(self, numbers: range) -> None:
        """They were moved and are deleted here, and the target has lost them."""

    def wait(self, waiter: DataWaiter) -> None:
        """Let it know when the limit moves, or the target is to be asked again."""

    def leave(self, waiter: DataWaiter) -> None: ...


class Run:
    """Batches on their way, one behind the other, each saying which numbers it holds."""

    def __init__(self, source: RelaySource, place: RelayPlace | None) -> None:
        """The target is at `place`."""
        self._source = source
        self.batches = bytearray()
        self.place = place
        self.lost: list[range] = []

    def add(self, batch: memoryview, header: BatchHeader, epoch: int, number: int) -> None:
        """A batch, whose first record has this number under that leader epoch; changed in place."""
        epoch = self._reach(header, epoch, number, number + header.last_offset_delta)
        is_retired = self._source.kind == RelayKind.RETIRED
        # The name is the target's to fill in.
        stamp_relayed(batch, self._source.partition if is_retired else 0, epoch, number, named=not is_retired)
        self.batches += batch

    def count(self, header: BatchHeader, epoch: int, first: int, last: int) -> None:
        """Numbers that hold nothing for the target. That they were there must be known, or a gap would seem to be."""
        epoch = self._reach(header, epoch, first, last)
        self.batches += position_batch(self._source, RelayPlace(epoch, last), header.max_timestamp)

    def _reach(self, header: BatchHeader, epoch: int, first: int, last: int) -> int:
        """The target will be there; returns the epoch to say.

        Never of an earlier epoch than what the target has: where its latest is of no history of ours, what follows is
        moved as this leader's.
        """
        place = self.place
        epoch = epoch if place is None else max(epoch, place.epoch)
        reached = RelayPlace(epoch, last)
        known = RelayPlace(epoch, -1) if place is None else place
        if reached > known and first > known.number + 1:
            # Between the two nothing is left here: the source begins behind what the target lost, or parted from it.
            self.lost.append(range(known.number + 1, first))
            before = RelayPlace(known.epoch, first - 1)
            self.batches += position_batch(self._source, before, header.max_timestamp, skips=True)
        self.place = max(known, reached)
        return epoch
