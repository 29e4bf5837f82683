"""Somebody who knows the cluster's secret, and says to be one of its brokers."""

from typing import Any

from penstock.coordination.image import ClusterImage
from penstock.records.relay import RelayKind
from penstock.replication.introduction import Identity
from penstock.replication.peer import Peer
from penstock.testing.sim_broker import PORT
from penstock.wire.peers.routes import WireRoute


class AsBroker:
    def __init__(self, image: ClusterImage, node: int, broker_epoch: int) -> None:
        self._identity = Identity(node, image, lambda: broker_epoch)

    async def ask(self, asked: int, host: str, api_key: int, request: Any, version: int = 0) -> Any:
        peer = Peer(asked, host, PORT, self._identity, "test")
        try:
            return await peer.ask(api_key, version, request, 5.0)
        finally:
            peer.close()


def retired_route(topic_id: bytes, source: int, into: int) -> WireRoute:
    return WireRoute(RelayKind.RETIRED, topic_id, source, topic_id, into)
