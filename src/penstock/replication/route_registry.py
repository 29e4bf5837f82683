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
        # By kind and the source's topic. All of these are dictionaries for their order: a topic may have ten thousand
        # routes into one partition, and each that ends is a change.
        self._by_topic: dict[tuple[int, bytes], dict[RelayRoute, None]] = {}
        self._begin: dict[_Place, dict[RelayRoute, None]] = {}
        self._end: dict[_Place, dict[RelayRoute, None]] = {}
        self._listeners: list[Callable[[bytes], None]] = []

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """It hears of each topic whose routes, those that begin there, have changed."""
        self._listeners.append(listener)

    def register(self, kind: int, source_topic_id: bytes, routes: Iterable[RelayRoute]) -> None:
        """These are all of this kind that begin in that topic; none: they are over."""
        found = dict.fromkeys(routes)
        before = self._by_topic.pop((kind, source_topic_id), {})
        if found:
            self._by_topic[kind, source_topic_id] = found
        if found == before:
            return
        for route in before:
            if route not in found:
                _remove(self._begin, route.begin, route)
                _remove(self._end, route.end, route)
        for route in found:
            if route not in before:
                self._begin.setdefault(route.begin, {})[route] = None
                self._end.setdefault(route.end, {})[route] = None
        for listener in self._listeners:
            listener(source_topic_id)

    def __contains__(self, route: RelayRoute) -> bool:
        return route in self._begin.get(route.begin, ())

    def out_of(self, topic_id: bytes, index: int) -> tuple[RelayRoute, ...]:
        """Those that begin there: each wants a pump where the partition is led."""
        return tuple(self._begin.get((topic_id, index), ()))

    def into(self, topic_id: bytes, index: int) -> tuple[RelayRoute, ...]:
        """Those that end there: the partition's log keeps their positions."""
        return tuple(self._end.get((topic_id, index), ()))


def _remove(routes: dict[_Place, dict[RelayRoute, None]], place: _Place, route: RelayRoute) -> None:
    del routes[place][route]
    if not routes[place]:
        del routes[place]
