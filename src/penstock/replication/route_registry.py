"""From where to where records are moved by relays: whichever part of the broker wants some moved registers its routes.

Every broker knows all of them, wherever their ends are led: a source's leader has a pump for each route that begins
there (`services.relay.relays`), and a target's leader takes only what comes by one that ends there, and keeps its
position for as long as there is one (`services.relay.inbox`, `services.relay.positions`). So whoever registers a route
does so before the replicas of its target get their roles: until then its position counts as one that is over.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.records.relay import OWN_TOPIC, RelayKind, RelaySource

_Place = tuple[bytes, int]  # topic id and partition


class RelayRoute(NamedTuple):
    kind: int
    source_topic_id: bytes
    source_partition: int
    target_topic_id: bytes
    target_partition: int

    @property
    def begin(self) -> _Place:
        return self.source_topic_id, self.source_partition

    @property
    def end(self) -> _Place:
        return self.target_topic_id, self.target_partition

    @property
    def source(self) -> RelaySource:
        """As the target's log knows it."""
        topic_id = OWN_TOPIC if self.kind == RelayKind.RETIRED else self.source_topic_id
        return RelaySource(self.kind, topic_id, self.source_partition)


class RouteRegistry:
    def __init__(self) -> None:
        self._by_topic: dict[tuple[int, bytes], list[RelayRoute]] = {}  # by kind and the source's topic
        self._begin: dict[_Place, tuple[RelayRoute, ...]] = {}
        self._end: dict[_Place, tuple[RelayRoute, ...]] = {}
        self._listeners: list[Callable[[bytes], None]] = []

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """It hears of each topic whose routes, those that begin there, have changed."""
        self._listeners.append(listener)

    def register(self, kind: int, source_topic_id: bytes, routes: Iterable[RelayRoute]) -> None:
        """These are all of this kind that begin in that topic; none: they are over."""
        found = list(routes)
        before = self._by_topic.pop((kind, source_topic_id), [])
        if found:
            self._by_topic[kind, source_topic_id] = found
        if found == before:
            return
        for route in before:
            _remove(self._begin, route.begin, route)
            _remove(self._end, route.end, route)
        for route in found:
            self._begin[route.begin] = (*self._begin.get(route.begin, ()), route)
            self._end[route.end] = (*self._end.get(route.end, ()), route)
        for listener in self._listeners:
            listener(source_topic_id)

    def __contains__(self, route: RelayRoute) -> bool:
        return route in self.out_of(*route.begin)

    def out_of(self, topic_id: bytes, index: int) -> tuple[RelayRoute, ...]:
        """Those that begin there: each wants a pump where the partition is led."""
        return self._begin.get((topic_id, index), ())

    def into(self, topic_id: bytes, index: int) -> tuple[RelayRoute, ...]:
        """Those that end there: the partition's log keeps their positions."""
        return self._end.get((topic_id, index), ())


def _remove(routes: dict[_Place, tuple[RelayRoute, ...]], place: _Place, route: RelayRoute) -> None:
    left = tuple(other for other in routes.pop(place) if other != route)
    if left:
        routes[place] = left
