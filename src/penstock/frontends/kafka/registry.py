"""The table of APIs this broker serves. A handler registers itself when it is loaded, which is when it is first asked
for: a broker serves before it has read all of them. ApiVersions answers from `served.py`, which `make codegen` makes
from what handlers say when they register.

A handler is a function `(services, request, call) -> response`, or a coroutine function where it has to wait, or
returns a `PendingReply` where waiting must cost no task nor hold up the client's next requests (groups). Produce
and Fetch are not here: they have flattened codecs and answer from inside the connection (`hot.py`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.core.session import Session
from penstock.frontends.kafka.pace import Pace
from penstock.frontends.kafka.served import SERVED
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.messages import MessageModule, request_module


@dataclass(slots=True)
class Call:
    """What a handler may want to know of a request besides its body. Not frozen: that would cost at each request."""

    version: int
    client_id: str | None
    session: Session
    told: int = 0  # entries of answers to portions before, where they are bounded
    named: set[object] | None = None  # in portions that were answered before (`portions`), where that matters


Handler = Callable[[Services, Any, Call], Any]
# Of a large request that is answered in portions: reads all that must be of one state, and returns what answers each
# portion from that.
Snapshot = Callable[[Services, Any, Call, Pace], Awaitable[Callable[[Any], Any]]]
# Whether a small request has an answer so large that it is made in portions (where the API has any), and few at once.
AsksForMuch = Callable[[Services, Any, Call], bool]


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
    asks_for_much: AsksForMuch | None = None  # with `portions`, or where it `gives_way`


# Served only where `penstock.transactions.enable` says so.
OF_TRANSACTIONS = frozenset({int(ApiKey.TXN_OFFSET_COMMIT)})


class Registry(dict[int, Api]):
    """Those that are loaded; asking for another one loads it."""

    def __missing__(self, key: int) -> Api:
        if key not in SERVED:
            raise KeyError(key)
        load(key)
        return self[key]

    def find(self, key: int) -> Api | None:
        return self[key] if key in SERVED else None


REGISTRY = Registry()


def load(key: int) -> None:
    module, lowest, highest, _ = SERVED[key]
    if module:
        import_module(f"penstock.frontends.kafka.handlers.{module}")
    else:
        REGISTRY[key] = Api(key, lowest, highest, request_module(key), None)


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
    asks_for_much: AsksForMuch | None = None,
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
            asks_for_much,
        )
        return handler

    return register


def not_served(config: BrokerConfig) -> frozenset[int]:
    """Of those there are."""
    return frozenset() if config.penstock_transactions_enable else OF_TRANSACTIONS


def advertised(without: frozenset[int] = OF_TRANSACTIONS) -> list[tuple[int, int, int]]:
    """(key, lowest, highest version) as ApiVersions tells them."""
    # Produce is advertised from 0, as Kafka 4 does: older librdkafka versions otherwise drop compression.
    return [
        (key, 0 if key == 0 else lowest, highest)
        for key, (_, lowest, highest, internal) in SERVED.items()
        if not internal and key not in without
    ]
