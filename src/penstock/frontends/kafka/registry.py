"""The table of APIs this broker serves. A handler registers itself; ApiVersions answers from this table.

A handler is a function `(services, request, call) -> response`, or a coroutine function where it has to wait, or
returns a `PendingReply` where waiting must cost no task nor hold up the client's next requests (groups). Produce
and Fetch are not here: they have flattened codecs and answer from inside the connection (`hot.py`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.session import Session
from penstock.frontends.kafka.pace import Pace
from penstock.services.services import Services
from penstock.wire.kafka.messages import MessageModule, request_module


@dataclass(slots=True)
class Call:
    """What a handler may want to know of a request besides its body. Not frozen: that would cost at each request."""

    version: int
    client_id: str | None
    session: Session
    named: set[object] | None = None  # in portions that were answered before (`portions`), where that matters


Handler = Callable[[Services, Any, Call], Any]
# Of a large request that is answered in portions: reads all that must be of one state, and returns what answers each
# portion from that.
Snapshot = Callable[[Services, Any, Call, Pace], Awaitable[Callable[[Any], Any]]]


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    min_version: int
    max_version: int
    codec: MessageModule
    handler: Handler | None  # None: served on the hot path
    forwarded: bool = False  # only the controller carries it out; the others pass it on
    internal: bool = False  # between brokers: clients are not told of it, nor is it served to them
    introduces: bool = False  # internal, and how a broker becomes known as one
    portions: tuple[tuple[str, ...], ...] = ()  # lists whose entries are answered apart; see `portions`
    gives_way: bool = False  # to others, by itself, where its lists are long
    snapshot: Snapshot | None = None  # with `portions`, where these may not be answered from different states


REGISTRY: dict[int, Api] = {}


def api(
    key: int,
    *,
    versions: tuple[int, int],
    forwarded: bool = False,
    internal: bool = False,
    introduces: bool = False,
    portions: tuple[tuple[str, ...], ...] = (),
    gives_way: bool = False,
    snapshot: Snapshot | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of an API."""

    def register(handler: Handler) -> Handler:
        REGISTRY[key] = Api(
            key,
            *versions,
            request_module(key),
            handler,
            forwarded,
            internal,
            introduces,
            portions,
            gives_way,
            snapshot,
        )
        return handler

    return register


def advertised(registry: dict[int, Api]) -> list[tuple[int, int, int]]:
    """(key, lowest, highest version) as ApiVersions tells them."""
    # Produce is advertised from 0, as Kafka 4 does: older librdkafka versions otherwise drop compression.
    return [
        (one.key, 0 if one.key == 0 else one.min_version, one.max_version)
        for one in sorted_apis(registry)
        if not one.internal
    ]


def sorted_apis(registry: dict[int, Api]) -> list[Api]:
    return [registry[key] for key in sorted(registry)]
