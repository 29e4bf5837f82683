"""A fetch of so many partitions that it gives way to others: it looks at some of them in a turn of the loop.

Between two turns everything may change. So each partition's answer is what was true when it was looked at, and nothing
is taken from one turn to the next but that. What comes meanwhile must not be missed:

    look at all ──▶ enough, or urgent ──▶ answer
        │ nothing yet
        ▼
    join all that wait there ──▶ look at all again ──▶ wait ──▶ woken, or out of time: look again

Whoever joined is told what is added (`advanced`). What was added during a look may or may not be in it: it counts, and
where that could be enough there is another look.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from penstock.core.errors import ApiError
from penstock.core.limits import FETCH_PARTITIONS_AT_ONCE, FETCH_SLICES_MAX, TURN_ITEMS_MAX
from penstock.replication.limits import PLENTY
from penstock.services.fetching.follower import FollowerFetch
from penstock.services.fetching.found import FoundInTopic
from penstock.services.fetching.request import Cold, Fetch

_Entry = TypeVar("_Entry")
_Topics = Sequence[tuple[bytes, Sequence[_Entry]]]


def is_long(topics: _Topics[Any]) -> bool:
    if len(topics) == 1:
        return len(topics[0][1]) > FETCH_PARTITIONS_AT_ONCE
    return sum(len(partitions) for _, partitions in topics) > FETCH_PARTITIONS_AT_ONCE


class LongFetch(Fetch):
    __slots__ = (
        "_added_bytes",
        "_is_answering",
        "_is_joined",
        "_is_last",
        "_is_looking",
        "_lent",
        "_portion_max",
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._added_bytes = 0  # since the look began
        self._is_answering = False
        self._is_joined = False  # where it has to wait
        self._is_last = False  # it is out of time
        self._is_looking = False  # or joins
        self._lent = 0  # large slices of what was read
        # What producers wait for (acks=all) must not take a hundred turns between its commit and the answer.
        is_follower = isinstance(self._reads, FollowerFetch)
        self._portion_max = FETCH_PARTITIONS_AT_ONCE if is_follower else TURN_ITEMS_MAX

    def attempt(self, *, last: bool = False) -> None:
        self._is_last |= last
        if not (self._given_up or self._is_answering or self._is_looking):
            self._is_looking = True
            self._added_bytes = 0
            self._give_back()
            self._service.in_turns(self._look_at_all())

    def _look_at_all(self) -> Iterator[None]:
        found: list[FoundInTopic] = []
        cold: list[Cold] = []
        total, small, urgent, in_doubt = 0, 0, False, False
        for portion in _portions(self._topics, self._portion_max):
            # Others have read meanwhile, too.
            size_max, slices_max, small_max = self._service.budget(self._terms.max_bytes, self._reads.reader)
            slices_max = min(slices_max, FETCH_SLICES_MAX - self._lent)
            is_full = self._lent >= FETCH_SLICES_MAX or small >= small_max
            left = 0 if is_full else max(0, size_max - total)
            look = self._look(portion, left, slices_max, small_max - small, at_least_one=not total)
            topics, size, slices, in_small, is_urgent, is_cold, is_in_doubt = look
            self._lend(slices)
            found += topics
            cold += is_cold
            total += size
            small += in_small
            urgent, in_doubt = urgent or is_urgent, in_doubt or is_in_doubt
            yield
            if self._given_up:
                return
        self._is_looking = False
        self._conclude((found, total, self._lent, small, urgent, cold, in_doubt), last=self._is_last)

    def _wait(self) -> None:
        self._give_back()
        if self._timer is None:
            self._service.waiting += 1
            self._timer = self._service.call_later(self._wait_seconds(), self._expired)
        self._missing_bytes -= self._added_bytes
        if not self._is_joined:
            self._is_looking = self._is_joined = True
            self._service.in_turns(self._join_all())
        elif self._missing_bytes <= 0:
            self.attempt()

    def _join_all(self) -> Iterator[None]:
        known = set(self._joined)
        for portion in _portions(self._topics, self._portion_max):
            for topic, wanted in portion:
                for place in wanted:
                    try:
                        partition = self._find(topic, place.partition)
                    except ApiError:  # gone since it was looked at, which the next look will tell
                        continue
                    if partition not in known:
                        partition.limits.wait(self._reads.reader, self)
                        self._joined.append(partition)
            yield
            if self._given_up:
                return
        self._is_looking = False
        self.attempt()

    def advanced(self, added_bytes: int) -> None:
        self._added_bytes += added_bytes
        if added_bytes >= PLENTY:
            self._is_joined = False  # perhaps it is gone, and another one has its name
        super().advanced(added_bytes)

    def _leave(self) -> None:
        """Not while it may look again: who has left everywhere would have to join everywhere."""

    def give_up(self) -> None:
        super().give_up()
        self._give_back()

    def _answer(self, topics: list[FoundInTopic]) -> None:
        self._is_answering = True
        if self._end_wait():
            self._service.in_turns(self._leaving())
        self._service.in_turns(self._answering(topics))

    def _answering(self, topics: list[FoundInTopic]) -> Iterator[None]:
        told: list[FoundInTopic] = []
        for portion in _portions(topics, self._portion_max):
            if isinstance(self._reads, FollowerFetch):
                self._reads.sent(portion, self._find)
            if self._told is not None:
                portion = self._told(portion)
            for topic, found in portion:
                if told and told[-1][0] == topic:
                    told[-1][1].extend(found)
                else:
                    told.append((topic, found))
            yield
            if self._given_up:
                return
        self._give_back()
        self._tell(told)

    def _lend(self, slices: int) -> None:
        """An answer in the making holds files open, too."""
        self._lent += slices
        self._service.lend(slices)

    def _give_back(self) -> None:
        self._lend(-self._lent)


def _portions(topics: _Topics[_Entry], portion_max: int) -> Iterator[list[tuple[bytes, list[_Entry]]]]:
    """So many entries or so at a time."""
    portion: list[tuple[bytes, list[_Entry]]] = []
    size = 0
    for topic, entries in topics:
        for start in range(0, len(entries) or 1, portion_max):
            piece = list(entries[start : start + portion_max])
            portion.append((topic, piece))
            size += len(piece) + 1
            if size >= portion_max:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion
