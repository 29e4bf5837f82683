"""Messages on their way from librdkafka into the unfinished: whatever is raised there, none is forgotten.

librdkafka has moved on once it has given a message away, so a message that we do not hand out must be kept or read
again, or a later commit passes it. What was taken lies in the inbox until the unfinished has it. What is not handed out
after all (its partition is paused, or its time has not come) is read again: `back` has from where, until the seek
has worked. And a poll that an exception cut short may have had messages in hand which nobody will see: then every
partition goes back to the last message that is known to have come. A rebalance may have been cut short with it: then
what waits in the unfinished comes back to the inbox, and goes by what is ours before it is handed out.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.consuming.reader_errors import UNKNOWN
from penstock.client.consuming.unfinished import Unfinished, Where, where

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Message as RawMessage


class Intake:
    def __init__(self, raw: "RawConsumer", owned: set[Where], unfinished: Unfinished) -> None:
        self._raw = raw
        self._owned = owned
        self._unfinished = unfinished
        self.inbox: list[RawMessage] = []
        self.back: dict[Where, int] = {}  # from where partitions are to be read again
        self._rebalanced = False  # while messages were taken
        self.cut_short = False

    def poll(self, most: int, wait: float) -> None:
        """Take messages into the inbox, unless some are there still."""
        if self.inbox:
            return
        self._rebalanced = False
        try:
            first = self._raw.poll(wait)
            if first is None:
                return
            self.inbox.append(first)
            if most > 1:
                # consume(n, wait) would wait for all n; what is here already is enough.
                self.inbox += self._raw.consume(most - 1, 0)
        except BaseException:
            # Also a KafkaException: the callbacks in config (errors, statistics) are the application's, and raise any.
            # Nothing is called here: a second Ctrl-C cannot come between.
            self.inbox = self._unfinished.raws[self._unfinished.index :] + self.inbox
            self._unfinished.raws = self._unfinished.raws[: self._unfinished.index]
            self.cut_short = True
            raise

    @property
    def waiting(self) -> "list[RawMessage]":
        """What was taken and is not in the unfinished."""
        return (
            [] if self._unfinished.took is self.inbox else [raw for raw in self.inbox if raw.error() is None]
        )

    def take_errors(self) -> "list[RawMessage]":
        """The errors that came among the messages; those stay."""
        good = [raw for raw in self.inbox if raw.error() is None]
        errors: list[RawMessage] = []
        if len(good) != len(self.inbox):
            errors = [raw for raw in self.inbox if raw.error() is not None]
        # Those that came before a rebalance inside the same call may be another member's by now.
        self.inbox = [raw for raw in good if where(raw) in self._owned] if self._rebalanced else good
        return errors

    def drop(self, places: Iterable[Where]) -> None:
        """Forget what was taken of some partitions. That their topic was deleted stays to be told: it comes once."""
        gone = frozenset(places)
        if gone and self.inbox:
            self.inbox[:] = [raw for raw in self.inbox if where(raw) not in gone or _tells_deleted(raw)]

    def rebalanced(self, gone: Collection[Where] = ()) -> None:
        """Partitions came or went: what was taken of those that went is not ours to hand out."""
        self._rebalanced = True
        self.drop(gone)
        for place in gone:
            self.back.pop(place, None)

    def read_again(self, place: Where, offset: int) -> None:
        """Nothing of this partition is handed out before it is read from there."""
        self.back[place] = min(offset, self.back.get(place, offset))

    def back_to(self, offsets: Mapping[Where, int]) -> dict[Where, int]:
        """What `back` is to be where these are read again, too."""
        return self.back | {
            place: min(offset, self.back.get(place, offset)) for place, offset in offsets.items()
        }

    def seek(self, place: Where, offset: int) -> None:
        """Go on elsewhere; what was to be read again need not be."""
        self._move(place, offset)
        self.drop([place])

    def return_back(self) -> None:
        """Seek to where partitions must be read again. A seek that fails is made again before the next poll."""
        for place, offset in list(self.back.items()):
            # What was taken before that offset is still to be handed out.
            self.inbox[:] = [raw for raw in self.inbox if where(raw) != place or raw.offset() < offset]  # type: ignore[operator]
            self._unfinished.drop_from(place, offset)
            self._move(place, offset)

    def _move(self, place: Where, offset: int) -> None:
        self._raw.seek(TopicPartition(*place, offset))
        self._unfinished.moved(place, offset)
        self.back.pop(place, None)

    def mend(self) -> set[Where]:
        """After a poll that was cut short: go back to what is known. Gives the partitions of which nothing is."""
        if not self.cut_short:
            return set()
        known = self._unfinished.next_offsets([raw for raw in self.inbox if raw.error() is None])
        for place in self._owned & known.keys():
            self.read_again(place, known[place])
        unknown = self._owned - self.back.keys()
        self.cut_short = False  # with nothing called behind it
        return unknown


def _tells_deleted(raw: "RawMessage") -> bool:
    error = raw.error()
    return error is not None and error.code() in UNKNOWN
