"""What must be true of a consumer's story: see consumer_story.py."""

import json
from collections import Counter
from collections.abc import Callable

from tests.unit.client.scripted import Broker
from tests.unit.client.scripted_message import Stored

from penstock.client.consuming.unfinished import Where
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry import headers as retry_headers

# Dead letters of another group: what they say of their former failures is believed in that topic alone.
TOPIC, GROUP = "orders.old.dlq", "billing"
PARTITIONS = 2  # to begin with

Spot = tuple[str, int, int]


class Violation(AssertionError):  # noqa: N818 - as the other checkers call it
    """A promise was broken."""


class Checks:
    def __init__(self, broker: Broker, *, ahead: bool) -> None:
        self._broker = broker
        self._ahead = ahead
        self._done: set[Spot] = set()
        self._begun: Counter[Spot] = Counter()
        self._others: dict[Where, int] = {}  # what another member has committed last
        self._excused = False
        self._opened_with = PARTITIONS  # when the member opened
        self._closing = False
        self._troubles = 0
        self._begun_at: dict[Where, int] = {}  # how much trouble there had been then
        self._begins: dict[Where, int] = {}  # where a partition without a commit was begun
        self._again: dict[Where, int] = {}  # what it asked for again and has not been handed yet
        self._gone: set[Spot] = set()  # retention took it, and nobody had worked on it

    def _committed(self, place: Where, offset: int) -> None:
        if offset < self._others.get(place, 0):
            raise Violation(f"{place} is set back to {offset} behind another member")
        if offset > self._again.get(place, offset):
            raise Violation(
                f"{place} is committed at {offset}, and {self._again[place]} was to be read again"
            )
        if self._ahead:
            return
        for stored in self._broker.logs[place][self._begins.get(place, 0) : offset]:
            if not self._is_safe(stored) and (*place, stored.number) not in self._gone:
                raise Violation(f"{place} is committed at {offset}, and {stored.number} is nowhere")

    def _handed_out(self, spot: Spot) -> None:
        self._begun[spot] += 1
        if self._ahead and self._begun[spot] > 1:
            raise Violation(f"{spot} was handed out twice")
        topic, index, number = spot
        if number >= self._again.get((topic, index), number + 1):
            del self._again[topic, index]

    def _asked_again(self, place: Where, offset: int) -> None:
        if offset < self._seen_to(place):
            self._again[place] = offset

    def _seen_to(self, place: Where) -> int:
        """Behind the last that was handed out."""
        seen = (number for topic, index, number in self._begun if (topic, index) == place)
        return max(seen, default=-1) + 1

    def _note_begin(self, place: Where, offset: int) -> None:
        if place[1] >= PARTITIONS and self._group_began():
            return
        if self._begun_at.get(place) != self._troubles:
            self._begins[place] = offset
            self._begun_at[place] = self._troubles

    def _group_began(self) -> bool:
        return any(topic == TOPIC for topic, _ in self._broker.committed)

    def _note(self) -> str:
        """What members of the group tell each other with their commits."""
        noted = (text for (topic, _), (_, text) in self._broker.committed.items() if topic == TOPIC and text)
        return next(noted, json.dumps({"began_with": self._opened_with}))

    def _is_safe(self, stored: Stored) -> bool:
        if (*stored.at, stored.number) in self._done:
            return True
        origin, failures = told(stored)
        later = (told(log) for place in self._kept() for log in self._broker.logs[place])
        parked = stored.topic() == TOPIC  # behind its key: it is there without having failed
        return any(known == origin and (count > failures or parked) for known, count in later)

    def _kept(self) -> list[Where]:
        """Where failed messages are found again: in the topics that this flow reads or lays them aside in."""
        names = (f"{TOPIC}.{GROUP}.retry", f"{TOPIC}.{GROUP}.dlq")
        return [place for place in self._broker.logs if place[0] in names]

    def _ended(self) -> set[Spot]:
        ended = {told(self._broker.logs[topic, index][number])[0] for topic, index, number in self._done}
        return ended | {
            told(log)[0]
            for place in self._kept()
            if place[0].endswith(".dlq")
            for log in self._broker.logs[place]
        }

    def _retain(self, place: Where, start: int) -> None:
        """Retention takes what lies before; whatever was not worked on is nobody's fault."""
        for stored in self._broker.logs[place][:start]:
            self._gone |= {(*place, stored.number), told(stored)[0]}
        if self._again.get(place, start) < start:
            self._again[place] = start
        self._broker.starts[place] = max(start, self._broker.starts.get(place, 0))

    def _check_order(self, message: Message) -> None:
        (topic, index, number), _ = told(self._broker.logs[message.topic, message.partition][message.offset])
        earlier = {
            (topic, index, log.number)
            for log in self._broker.logs[topic, index][:number]
            if log.key() == message.key
        }
        if earlier - self._ended():
            raise Violation(f"{message!r} of {number} is handed out before {sorted(earlier - self._ended())}")

    def _check_ends(self, close: Callable[[], None]) -> None:
        try:
            close()
        except ClientError as error:
            raise Violation(f"all is well, and it cannot be closed: {error}") from error

    def _check_end(self) -> None:
        ended = self._ended()
        for index in self._broker.partitions(TOPIC):
            for stored in self._broker.logs[TOPIC, index][self._begins.get((TOPIC, index), 0) :]:
                spot = (TOPIC, index, stored.number)
                if spot in self._gone:
                    continue
                if spot not in ended and not (self._ahead and self._excused):
                    raise Violation(f"{spot} was never worked on")


def told(stored: Stored) -> tuple[Spot, int]:
    """Where a message came from, and how often it had failed when it was stored there."""
    if stored.topic() == TOPIC:
        return (TOPIC, stored.partition(), stored.number), 0
    origin = retry_headers.origin(stored.headers())
    assert origin is not None
    return origin, retry_headers.failures(stored.headers())
