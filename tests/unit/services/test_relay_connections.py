"""Relays to another broker, however many: they leave connections for its clients, and go through all the same."""

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.core.limits import RELAY_CONNECTIONS_MAX
from penstock.records.relay import RelayKind, RelayPlace
from penstock.replication.peer import Peer
from penstock.replication.route_registry import RelayRoute
from penstock.services.peers.peers import Peers
from penstock.services.relay.sender import RelaySender
from penstock.wire.peers.relay_positions import RelayPositionsResponse

TOPIC = b"t" * 16
MANY = 1000


def test_relays_of_very_many_partitions_share_connections(monkeypatch: Any) -> None:
    used: set[Peer] = set()

    async def ask(self: Peer, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        used.add(self)
        return RelayPositionsResponse(positions=((1, request.route.source_partition),))

    monkeypatch.setattr(Peer, "ask", ask)
    topic = SimpleNamespace(partitions=[SimpleNamespace(leader=2, leader_epoch=1)])
    broker = SimpleNamespace(host="127.0.0.1", port=1)
    image: Any = SimpleNamespace(topics_by_id={TOPIC: topic}, brokers={2: broker})
    identity: Any = SimpleNamespace(node=1)
    inbox: Any = None

    async def story() -> None:
        peers = Peers(identity, image)
        for source in range(1, MANY + 1):
            route = RelayRoute(RelayKind.RETIRED, TOPIC, source, TOPIC, 0)
            assert await RelaySender(1, image, peers, inbox, route).places() == (RelayPlace(1, source),)
            # Those of a topic of ordinary size have one each: none waits for another's target.
            assert len(used) == min(source, RELAY_CONNECTIONS_MAX)

    asyncio.run(story())
