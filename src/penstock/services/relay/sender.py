"""The way to a relay's target: to the inbox here, or over the wire to the broker that leads it."""

from zlib import crc32

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import RELAY_CONNECTIONS_MAX
from penstock.records.relay import RelayPlace
from penstock.replication.peer import Peer, PeerError
from penstock.replication.route_registry import RelayRoute
from penstock.services.peers.peers import Peers
from penstock.services.relay.inbox import RelayInbox
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_deliver import RelayDeliverRequest
from penstock.wire.peers.relay_positions import RelayPositionsRequest
from penstock.wire.peers.routes import WireRoute

_VERSION = 0
_ANSWER_SECONDS = 5.0
_NO_EPOCH = -1


class RelaySender:
    """From one source to its target, wherever that is led at the moment."""

    def __init__(
        self, node: int, image: ClusterImage, peers: Peers, inbox: RelayInbox, route: RelayRoute
    ) -> None:
        self._node = node
        self._image = image
        self._peers = peers
        self._inbox = inbox
        self._route = route
        self._on_the_wire = WireRoute(*route)
        self._topic_id = route.target_topic_id
        self._into = route.target_partition

    @property
    def epoch(self) -> int:
        """The target's leader epoch, as far as is known here."""
        topic = self._image.topics_by_id.get(self._topic_id)
        if topic is None or self._into >= len(topic.partitions):
            return _NO_EPOCH
        return topic.partitions[self._into].leader_epoch

    async def places(self) -> tuple[RelayPlace, ...]:
        """How far the target has it committed: the latest first. PenstockError: nobody can tell now."""
        leader = self._leader()
        if leader == self._node:
            return self._inbox.places(self._route)
        request = RelayPositionsRequest(self._on_the_wire)
        answer = await self._peer(leader).ask(PeerApi.RELAY_POSITIONS, _VERSION, request, _ANSWER_SECONDS)
        _check(answer.error_code, answer.error_message)
        return tuple(RelayPlace(epoch, number) for epoch, number in answer.positions)

    async def deliver(self, batches: bytearray) -> None:
        """Returns once the target has committed all of them. PenstockError: open what became of them."""
        leader = self._leader()
        if leader == self._node:
            await self._inbox.take(self._route, memoryview(batches), _ANSWER_SECONDS)
            return
        request = RelayDeliverRequest(self._on_the_wire, int(_ANSWER_SECONDS * 1000), batches)
        answer = await self._peer(leader).ask(PeerApi.RELAY_DELIVER, _VERSION, request, 2 * _ANSWER_SECONDS)
        _check(answer.error_code, answer.error_message)

    def _leader(self) -> int:
        topic = self._image.topics_by_id.get(self._topic_id)
        if topic is None or self._into >= len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[self._into].leader

    def _peer(self, broker: int) -> Peer:
        """Few relays share a connection; of thousands each would take one from the target's clients."""
        of_source = crc32(self._route.source_topic_id) + self._route.source_partition
        peer = self._peers.peer(broker, f"relay-{of_source % RELAY_CONNECTIONS_MAX}")
        if peer is None:
            raise PeerError(f"broker {broker} is not there")
        return peer


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), message or "")
