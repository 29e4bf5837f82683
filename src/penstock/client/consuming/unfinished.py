"""The messages a consumer has taken from librdkafka, and how far each partition is finished.

    raws:   [ finished … | handed out, being worked on | not handed out yet … ]
                          ^ marked                      ^ index

Per message nothing but `index` moves; positions are worked out when a commit needs them, from the end: the last message
of each partition says it all.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

Where = tuple[str, int]


def where(raw: "RawMessage") -> Where:
    return raw.topic(), raw.partition()  # type: ignore[return-value]


def place_of(partition: TopicPartition) -> Where:
    return partition.topic, partition.partition


def first_offsets(raws: "Iterable[RawMessage]") -> dict[Where, int]:
    first: dict[Where, int] = {}
    for raw in raws:
        first.setdefault(where(raw), raw.offset())  # type: ignore[arg-type]
    return first


def next_offsets(raws: "Iterable[RawMessage]") -> dict[Where, int]:
    """Behind the last of each partition."""
    return {where(raw): raw.offset() + 1 for raw in raws}  # type: ignore[operator]


class Unfinished:
    def __init__(self, owned: Collection[Where] = ()) -> None:
        """`owned` is looked at, not copied: the partitions that messages come from."""
        self._owned = owned
        self.raws: list[RawMessage] = []
        self.index = 0
        self._marked = 0
        # The next offset of what is finished; only what changed since it was taken.
        self.positions: dict[Where, int] = {}
        self._pins: dict[Where, int] = {}  # partitions whose position must not pass an offset
        self._wanted: dict[
            Where, int
        ] = {}  # the same, until the next messages come: what was asked for again
        self._reached: dict[Where, int] = {}  # the next offset of what is finished, or where a seek went to
        # At-most-once: up to there they are committed, where that is not done as they are taken.
        self.promised = 0
        self.took: object = None  # the inbox that the last refill emptied
        self._sought: set[Where] = set()  # a seek came behind those of their messages that are here

    def refill(self, raws: "list[RawMessage]", inbox: object = None) -> None:
        """New messages behind those that are there; what is finished is forgotten. They come out of `inbox`."""
        self.finish()
        self._wanted = {}  # all that was handed out before is finished, those that come now are what was asked for
        raws = self.raws[self.index :] + raws if self.index < len(self.raws) else raws
        self.promised = 0
        self.raws, self.index, self._marked, self._sought, self.took = raws, 0, 0, set(), inbox

    def finish(self, in_hand: int = 0) -> None:
        """Everything handed out is finished, but for the last `in_hand`."""
        end = max(self._marked, self.index - in_hand)
        self._advance(self.raws[self._marked : end])
        self._marked = end
        for pinned in (self._wanted, self._pins):
            for place, offset in pinned.items():
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
        for place, offset in found.items():
            if place not in self._sought:
                self._reached[place] = offset

    def pin(self, place: Where, offset: int) -> None:
        """This message was handed out but is not finished: it will be handed out again."""
        self._pins[place] = offset
        self.positions[place] = offset

    def unpin(self, place: Where) -> None:
        self._pins.pop(place, None)

    @property
    def has_unfinished(self) -> bool:
        return self._marked < self.index

    def sent(self, positions: Mapping[Where, int]) -> None:
        """These were committed: they need not be again, unless they have moved meanwhile."""
        for place, offset in positions.items():
            if self.positions.get(place) == offset:
                del self.positions[place]

    def moved(self, place: Where, offset: int) -> None:
        """A seek: the next message of this partition comes from there. What was not handed out is dropped already."""
        self._reached[place] = offset
        self._sought.add(place)

    def is_back(self, place: Where, offset: int) -> bool:
        """Whether a seek goes back behind what was handed out, or nothing was yet."""
        handed = next_offsets(raw for raw in self.raws[self._marked : self.index] if where(raw) == place)
        known = handed | ({} if place in handed else self._reached)
        return place not in known or offset < known[place]

    def go_back(self, place: Where, offset: int) -> None:
        """A seek asks for messages again: no commit passes them before they were worked on again."""
        self._wanted[place] = offset
        self.positions[place] = offset

    def is_in_hand(self, place: Where, offset: int) -> bool:
        """Whether it was handed out, and nobody has said since that it is done."""
        return any(
            raw.offset() == offset and where(raw) == place for raw in self.raws[self._marked : self.index]
        )

    def is_sought_before(self, place: Where, offset: int) -> bool:
        """Whether a seek went before this message since it was handed out."""
        return place in self._sought and self._reached.get(place, offset) < offset

    def keep_back(self, place: Where, offset: int) -> None:
        """A message in hand is not done: no commit passes it before it was handed out again."""
        self._wanted[place] = min(offset, self._wanted.get(place, offset))

    def next_offsets(self, behind: "Sequence[RawMessage]") -> dict[Where, int]:
        """Behind the last message that came of each partition, `behind` being those that came after ours."""
        known = dict(self._reached)
        here = [raw for raw in self.raws if where(raw) not in self._sought]
        return known | next_offsets([*here, *behind])

    def pending(self) -> dict[Where, int]:
        """The first offset not handed out, by partition."""
        return first_offsets(self.raws[self.index :])

    def pending_of(self, wanted: Iterable[Where]) -> dict[Where, int]:
        """The same, of some partitions."""
        these = frozenset(wanted)
        return {place: offset for place, offset in self.pending().items() if place in these}

    def without(self, wanted: Iterable[Where]) -> "list[RawMessage]":
        """All of ours, but for what was not handed out of some partitions."""
        gone = frozenset(wanted)
        return self.raws[: self.index] + [raw for raw in self.raws[self.index :] if where(raw) not in gone]

    def drop(self, wanted: Iterable[Where]) -> None:
        """Forget what was not handed out of some partitions."""
        kept = self.without(wanted)
        if len(kept) < len(self.raws):
            self.promised, self.raws = 0, kept

    def drop_from(self, place: Where, offset: int) -> None:
        """The same, of one partition from an offset on."""
        kept = self.raws[: self.index] + [
            raw
            for raw in self.raws[self.index :]
            if where(raw) != place or raw.offset() < offset  # type: ignore[operator]
        ]
        if len(kept) < len(self.raws):
            self.promised, self.raws = 0, kept

    def forget(self, gone: Iterable[Where]) -> None:
        """Partitions that are not ours any more; what was handed out of them is finished or nobody's business."""
        gone = frozenset(gone)
        self.drop(gone)
        for place in gone:
            self.positions.pop(place, None)
            self._pins.pop(place, None)
            self._wanted.pop(place, None)
            self._reached.pop(place, None)
            self._sought.add(place)  # should it come back, those that are here do not tell where it stands
