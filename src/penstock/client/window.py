"""The messages a consumer has taken from librdkafka, and how far each partition is finished.

    raws:   [ finished … | handed out, being worked on | not handed out yet … ]
                          ^ marked                      ^ index

Per message nothing but `index` moves; positions are worked out when a commit needs them, from the end: the last message
of each partition says it all.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

Where = tuple[str, int]


def where(raw: "RawMessage") -> Where:
    return raw.topic(), raw.partition()  # type: ignore[return-value]


class Window:
    def __init__(self, owned: Collection[Where] = ()) -> None:
        """`owned` is looked at, not copied: the partitions that messages come from."""
        self._owned = owned
        self.raws: list[RawMessage] = []
        self.index = 0
        self._marked = 0
        # The next offset of what is finished; only what changed since it was taken.
        self.positions: dict[Where, int] = {}
        self._pins: dict[Where, int] = {}  # partitions whose position must not pass an offset

    def refill(self, raws: "list[RawMessage]") -> None:
        """New messages behind those that are there; what is finished is forgotten."""
        self.finish()
        self.raws = self.raws[self.index :] + raws if self.index < len(self.raws) else raws
        self.index = self._marked = 0

    def finish(self, unfinished: int = 0) -> None:
        """Everything handed out is finished, but for the last `unfinished`."""
        end = max(self._marked, self.index - unfinished)
        self._advance(self.raws[self._marked : end])
        self._marked = end
        for place, offset in self._pins.items():
            if self.positions.get(place, offset) > offset:
                self.positions[place] = offset

    def _advance(self, finished: "Sequence[RawMessage]") -> None:
        found: dict[Where, int] = {}
        missing = len(self._owned) or -1  # nobody said: all are looked at
        topic = partition = None
        for raw in reversed(finished):
            # They come in runs: most are told to be of the same partition by two quick looks.
            if raw.partition() == partition and raw.topic() == topic:
                continue
            topic, partition = place = where(raw)
            if place not in found:
                found[place] = raw.offset() + 1  # type: ignore[operator]
                missing -= place in self._owned
                if not missing:
                    break
        self.positions.update(found)

    def pin(self, place: Where, offset: int) -> None:
        """This message was handed out but is not finished: it will be handed out again."""
        self._pins[place] = offset
        self.positions[place] = offset

    def unpin(self, place: Where) -> None:
        self._pins.pop(place, None)

    @property
    def has_unfinished(self) -> bool:
        return self._marked < self.index

    def take_positions(self, wanted: Iterable[Where] | None = None) -> dict[Where, int]:
        """Finished positions that were not taken before, of some partitions or all."""
        if wanted is None:
            taken, self.positions = self.positions, {}
            return taken
        return {one: self.positions.pop(one) for one in wanted if one in self.positions}

    def pending(self) -> dict[Where, int]:
        """The first offset not handed out, by partition."""
        first: dict[Where, int] = {}
        for raw in self.raws[self.index :]:
            first.setdefault(where(raw), raw.offset())  # type: ignore[arg-type]
        return first

    def drop(self, wanted: Iterable[Where]) -> dict[Where, int]:
        """Forget what was not handed out of some partitions; gives the first offset forgotten of each."""
        gone = frozenset(wanted)
        dropped = {one: offset for one, offset in self.pending().items() if one in gone}
        if dropped:
            kept = [raw for raw in self.raws[self.index :] if where(raw) not in gone]
            self.raws[self.index :] = kept
        return dropped
