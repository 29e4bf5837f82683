"""The way to a relay's target: to the inbox here, or over the wire to the broker that leads it."""

from collections.abc import Callable

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.relay import NAMED_IDS, RELAY_IDS, RelayKind, RelayPlace, relay_place
from penstock.replication.peer import Peer, PeerError
from penstock.replication.route_registry import RelayRoute
from penstock.services.peers.peers import Peers
from penstock.services.relay.inbox import RelayInbox, not_committed, sender_id
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.kafka.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_PRODUCE_VERSION = 13  # topics by id: another one of the same name must not get them
_DESCRIBE_VERSION = 0
_ANSWER_SECONDS = 5.0
_ALL = -1
_NO_EPOCH = -1


class Route:
    """From one source to its target, wherever that is led at the moment."""

    def __init__(
        self,
        node: int,
        image: ClusterImage,
        peers: Peers,
        inbox: RelayInbox,
        route: RelayRoute,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node = node
        self._image = image
        self._peers = peers
        self._inbox = inbox
        self._route = route
        self._topic_id = route.target_topic_id
        self._into = route.target_partition
        self._broker_epoch = broker_epoch

    @property
    def epoch(self) -> int:
        """The target's leader epoch, as far as is known here."""
        topic = self._image.topics_by_id.get(self._topic_id)
        if topic is None or self._into >= len(topic.partitions):
            return _NO_EPOCH
        return topic.partitions[self._into].leader_epoch

    async def places(self) -> tuple[RelayPlace, ...]:
        """How far the target has it committed: the latest first. PenstockError: nobody can tell now."""
        name, leader = self._leader()
        if leader == self._node:
            return self._inbox.places(self._route)
        self._check_kind()
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[self._into])])
        answer = await self._peer(leader).ask(
            ApiKey.DESCRIBE_PRODUCERS, _DESCRIBE_VERSION, request, _ANSWER_SECONDS
        )
        told = answer.topics[0].partitions[0]
        _check(told.error_code, told.error_message)
        places = []
        for active_producer in told.active_producers:
            if RELAY_IDS <= active_producer.producer_id < NAMED_IDS:
                source, place = relay_place(
                    active_producer.producer_id, active_producer.producer_epoch, active_producer.last_sequence
                )
                if source == self._route.source_partition:
                    if active_producer.current_txn_start_offset >= 0:
                        raise not_committed()
                    places.append(place)
        return tuple(sorted(places, key=lambda place: place.epoch, reverse=True))

    async def deliver(self, batches: bytearray) -> None:
        """Returns once the target has committed all of them. PenstockError: open what became of them."""
        _, leader = self._leader()
        if leader == self._node:
            await self._inbox.take(self._route, memoryview(batches), _ANSWER_SECONDS)
            return
        self._check_kind()
        data = PartitionProduceData(index=self._into, records=bytes(batches))
        request = ProduceRequest(
            transactional_id=sender_id(self._node, self._broker_epoch()),
            acks=_ALL,
            timeout_ms=int(_ANSWER_SECONDS * 1000),
            topic_data=[TopicProduceData(topic_id=self._topic_id, partition_data=[data])],
        )
        answer = await self._peer(leader).ask(ApiKey.PRODUCE, _PRODUCE_VERSION, request, 2 * _ANSWER_SECONDS)
        told = answer.responses[0].partition_responses[0]
        _check(told.error_code, told.error_message)

    def _check_kind(self) -> None:
        if self._route.kind != RelayKind.RETIRED:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "brokers tell each other of retired partitions alone"
            )

    def _leader(self) -> tuple[str, int]:
        topic = self._image.topics_by_id.get(self._topic_id)
        if topic is None or self._into >= len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.name, topic.partitions[self._into].leader

    def _peer(self, broker: int) -> Peer:
        peer = self._peers.peer(
            broker, f"relay-{self._route.source_topic_id.hex()}-{self._route.source_partition}"
        )
        if peer is None:
            raise PeerError(f"broker {broker} is not there")
        return peer


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), message or "")
