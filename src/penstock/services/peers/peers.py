"""Connections to the other brokers, wherever the metadata says that they are."""

from typing import Any

from penstock.coordination.image import ClusterImage
from penstock.replication.introduction import Identity
from penstock.replication.peer import NotSentError, Peer


class Peers:
    def __init__(self, identity: Identity, image: ClusterImage) -> None:
        self.node = identity.node
        self._identity = identity
        self._image = image
        self._peers: dict[tuple[int, str], Peer] = {}

    def peer(self, broker: int, purpose: str) -> Peer | None:
        """A connection for each purpose: what may take long must not hold up the rest."""
        registered = self._image.brokers.get(broker)
        if registered is None or broker == self.node:
            return None
        key, address = (broker, purpose), (registered.host, registered.port)
        peer = self._peers.get(key)
        if peer is None or peer.address != address:
            if peer is not None:
                peer.close()
            peer = self._peers[key] = Peer(broker, *address, self._identity, purpose)
        return peer

    async def ask(
        self, broker: int, purpose: str, api_key: int, version: int, request: Any, timeout_s: float
    ) -> Any:
        peer = self.peer(broker, purpose)
        if peer is None:
            raise NotSentError(f"broker {broker} is not there")
        return await peer.ask(api_key, version, request, timeout_s)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
