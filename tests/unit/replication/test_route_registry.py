"""Who registers routes is found by both of their ends, also across topics."""

import time

from penstock.records.relay import OWN_TOPIC, RelayKind, RelaySource
from penstock.replication.route_registry import RelayRoute, RouteRegistry

OLD, NEW = b"o" * 16, b"n" * 16
LETTERS = 7
FIRST = RelayRoute(RelayKind.RETIRED, NEW, 3, NEW, 1)
SECOND = RelayRoute(RelayKind.RETIRED, NEW, 2, NEW, 0)
ACROSS = RelayRoute(LETTERS, OLD, 3, NEW, 1)


def test_routes_are_found_by_either_end() -> None:
    routes = RouteRegistry()
    routes.register(RelayKind.RETIRED, NEW, [FIRST, SECOND])
    routes.register(LETTERS, OLD, [ACROSS])
    assert routes.into(NEW, 1) == (FIRST, ACROSS)
    assert routes.into(NEW, 0) == (SECOND,)
    assert routes.out_of(OLD, 3) == (ACROSS,)
    assert routes.out_of(NEW, 3) == (FIRST,)
    assert routes.out_of(NEW, 1) == routes.into(OLD, 3) == ()
    assert FIRST in routes
    assert FIRST._replace(target_partition=0) not in routes
    assert ACROSS._replace(kind=RelayKind.RETIRED) not in routes


def test_what_is_registered_takes_the_place_of_what_was() -> None:
    routes = RouteRegistry()
    heard: list[bytes] = []
    routes.listen(heard.append)
    routes.register(LETTERS, OLD, [ACROSS])
    held = routes.into(NEW, 1)
    routes.register(RelayKind.RETIRED, NEW, [FIRST, SECOND])
    routes.register(RelayKind.RETIRED, NEW, [FIRST, SECOND])
    assert heard == [OLD, NEW], "nothing changed the last time"
    routes.register(RelayKind.RETIRED, NEW, [SECOND])
    assert routes.into(NEW, 1) == held == (ACROSS,)
    assert FIRST not in routes
    routes.register(LETTERS, OLD, [])
    routes.register(RelayKind.RETIRED, NEW, [])
    assert heard == [OLD, NEW, NEW, OLD, NEW]
    assert routes.into(NEW, 1) == routes.into(NEW, 0) == routes.out_of(OLD, 3) == ()


def test_a_log_knows_retired_partitions_by_number_and_other_sources_by_their_topic() -> None:
    assert FIRST.source == RelaySource(RelayKind.RETIRED, OWN_TOPIC, 3)
    assert ACROSS.source == RelaySource(LETTERS, OLD, 3)


def test_one_of_very_many_that_is_over_costs_no_look_at_all_the_others() -> None:
    """A topic of ten thousand partitions that becomes one of one: they are removed one at a time, on every broker."""
    routes = RouteRegistry()
    many = [RelayRoute(RelayKind.RETIRED, NEW, index, NEW, 0) for index in range(1, 10_001)]
    routes.register(RelayKind.RETIRED, NEW, many)
    began = time.process_time()
    routes.register(RelayKind.RETIRED, NEW, many[:-1])
    assert time.process_time() - began < 0.5
    assert routes.into(NEW, 0) == tuple(many[:-1])
    assert many[-1] not in routes
