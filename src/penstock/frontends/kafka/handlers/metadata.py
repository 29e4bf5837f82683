"""Metadata (3), versions 0-13: the brokers, and for the topics asked for their partitions and leaders.

v0 asks for all topics with an empty list, v1 and later with null (v1 adds controller, rack and internal topics); v2 the
cluster id; v4 lets the client forbid creation of unknown topics; v5 offline replicas; v6
tells leaders that the listener does not reach from those that are gone; v7 leader epochs; v8 authorized operations (the
cluster's only until v10); v9 is flexible; v10 answers topic ids, v12 also takes them in place of names; v13 adds an
error for the whole answer.

Brokers are told as clients of the listener that was asked reach them.

An unknown topic that may be created is created before the answer leaves, and is in it. Kafka answers such a request
with UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again; clients are served the same way, one round trip sooner.

Retired partitions that readers have nothing left in are shown to nobody but to who has produced over the same
connection: it may have records in its queue for one of them, which it could never send.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from penstock.coordination.image import ClusterImage, Topic
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.limits import LARGE_ANSWER_ENTRIES, METADATA_ENCODED_BYTES_MAX, TURN_ITEMS_MAX
from penstock.core.turns import give_way
from penstock.frontends.kafka.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from penstock.frontends.kafka.registry import Call, api
from penstock.services.cluster_view import Reach, controller_id, live_brokers
from penstock.services.services import Services
from penstock.services.topics.names import is_legal_topic_name
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_response,
)
from penstock.wire.kafka.metadata import encode_topic, encode_with_topics
from penstock.wire.kafka.primitives import ZERO_UUID

_LISTENERS_SINCE = 6
_IDS_ASKED_SINCE = 12
_ERROR_SINCE = 13


_Wanted = TypeVar("_Wanted")


def asks_for_all(services: Services, request: MetadataRequest, call: Call) -> bool:
    """Of many topics. Others name them, and say little less than they are told."""
    return _is_for_all(request, call.version) and len(services.image.topics) > LARGE_ANSWER_ENTRIES


def _is_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


@api(ApiKey.METADATA, versions=(0, 13), gives_way=True, asks_for_much=asks_for_all)
def handle(services: Services, request: MetadataRequest, call: Call) -> bytes | Awaitable[list[bytes]]:
    asked, version = request.topics, call.version
    if asked is None or _is_for_all(request, version):
        return _answer(services, request, call, services.image.all_topics(), lambda topic: topic)
    error = _malformed(asked, version)
    if error is not None:
        return encode_response(_refused(asked, error, version), version)
    ids = [topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID]
    if ids:
        # As in Kafka, names beside ids do not count.
        return _answer(services, request, call, list(dict.fromkeys(ids)), partial(_by_id, services))
    names = list(dict.fromkeys(topic.name or "" for topic in asked))
    if request.allow_auto_topic_creation and services.config.now.auto_create_topics_enable:
        may_be_missing = partial(_is_missing, services)
        if len(names) > TURN_ITEMS_MAX or any(map(may_be_missing, names)):
            return _after_creation(services, request, call, names)
    return _answer(services, request, call, names, partial(_by_name, services))


async def _after_creation(
    services: Services, request: MetadataRequest, call: Call, names: Sequence[str]
) -> list[bytes]:
    missing = []
    for number, name in enumerate(names):
        await give_way(number)
        if _is_missing(services, name):
            missing.append(name)
    if missing:
        await services.topics.create_automatically(missing, services.config.now)
    return await _in_turns(services, request, call, names, partial(_by_name, services))


def _is_missing(services: Services, name: str) -> bool:
    return name not in services.image.topics and is_legal_topic_name(name)


def _malformed(asked: Sequence[MetadataRequestTopic], version: int) -> ErrorCode | None:
    """A request without a usable name or id, which fails as a whole."""
    if version < _IDS_ASKED_SINCE:
        if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked):
            return ErrorCode.INVALID_REQUEST
    elif all(topic.topic_id == ZERO_UUID for topic in asked) and any(topic.name is None for topic in asked):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _refused(asked: Sequence[MetadataRequestTopic], error: ErrorCode, version: int) -> MetadataResponse:
    return MetadataResponse(
        error_code=error if version >= _ERROR_SINCE else ErrorCode.NONE,
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in asked
        ],
    )


def _by_name(services: Services, name: str) -> Topic | MetadataResponseTopic:
    return services.image.topics.get(name) or _unknown(name)


def _unknown(name: str) -> MetadataResponseTopic:
    legal = is_legal_topic_name(name)
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _by_id(services: Services, topic_id: bytes) -> Topic | MetadataResponseTopic:
    return services.image.topics_by_id.get(topic_id) or MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
    )


def _answer(
    services: Services,
    request: MetadataRequest,
    call: Call,
    wanted: Sequence[_Wanted],
    find: Callable[[_Wanted], Topic | MetadataResponseTopic],
) -> bytes | Awaitable[list[bytes]]:
    if len(wanted) > TURN_ITEMS_MAX:
        return _in_turns(services, request, call, wanted, find)
    encode = _encoder(services, request, call)
    return b"".join(_around(services, request, call, [encode(find(key)) for key in wanted]))


async def _in_turns(
    services: Services,
    request: MetadataRequest,
    call: Call,
    wanted: Sequence[_Wanted],
    find: Callable[[_Wanted], Topic | MetadataResponseTopic],
) -> list[bytes]:
    """A client may ask for a hundred thousand topics; nobody else waits for that, nor for them to be copied."""
    encode = _encoder(services, request, call)
    parts = []
    for number, key in enumerate(wanted):
        await give_way(number)
        parts.append(encode(find(key)))
    return _around(services, request, call, parts)


def _encoder(
    services: Services, request: MetadataRequest, call: Call
) -> Callable[[Topic | MetadataResponseTopic], bytes]:
    version, whole = call.version, call.session.produces
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    listener = call.session.listener
    encoded = _encoded_topics(services.image, listener)
    encoded.check(services, Reach.of(services, listener))

    def encode(topic: Topic | MetadataResponseTopic) -> bytes:
        if isinstance(topic, Topic):
            return encoded.get(topic, version, operations, whole=whole)
        if topic.name is not None:
            topic.topic_authorized_operations = operations
        return encode_topic(topic, version)

    return encode


def _around(services: Services, request: MetadataRequest, call: Call, topics: Sequence[bytes]) -> list[bytes]:
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in live_brokers(services, call.session.listener)
    ]
    cluster = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    head = MetadataResponse(
        brokers=brokers,
        cluster_id=services.image.cluster_id,
        controller_id=controller_id(services),
        cluster_authorized_operations=cluster,
    )
    return encode_with_topics(head, topics, call.version)


class _EncodedTopics:
    """Topics as clients of one listener were last told of them, while neither they nor the brokers change."""

    def __init__(self) -> None:
        self._reach = Reach(frozenset(), frozenset())
        self._known: dict[tuple[str, int, int, int], tuple[Topic, bytes]] = {}
        self._size_bytes = 0

    def check(self, services: Services, reach: Reach) -> None:
        # Also when most of it must be of topics that are gone, or of versions no longer asked for.
        if reach != self._reach or len(self._known) > 1000 + 4 * len(services.image.topics):
            self._reach = reach
            self._forget()

    def get(self, topic: Topic, version: int, operations: int, *, whole: bool) -> bytes:
        count = len(topic.partitions) if whole else topic.shown
        key = (topic.name, version, operations, count)
        known = self._known.get(key)
        # The image makes a new object of a topic with every change to it.
        if known is not None and known[0] is topic:
            return known[1]
        response = _described(topic, count, self._reach, version)
        response.topic_authorized_operations = operations
        encoded = encode_topic(response, version)
        self._size_bytes += len(encoded) - (len(known[1]) if known else 0)
        if self._size_bytes > METADATA_ENCODED_BYTES_MAX:
            self._forget()
            self._size_bytes = len(encoded)
        self._known[key] = (topic, encoded)
        return encoded

    def _forget(self) -> None:
        self._known.clear()
        self._size_bytes = 0


_ENCODED: WeakKeyDictionary[ClusterImage, dict[str, _EncodedTopics]] = WeakKeyDictionary()


def _encoded_topics(image: ClusterImage, listener: str) -> _EncodedTopics:
    by_listener = _ENCODED.setdefault(image, {})
    encoded = by_listener.get(listener)
    if encoded is None:
        encoded = by_listener[listener] = _EncodedTopics()
    return encoded


def _described(topic: Topic, count: int, reach: Reach, version: int) -> MetadataResponseTopic:
    partitions = []
    for index, state in enumerate(topic.partitions[:count]):
        leader, error = reach.leadership(state)
        if error is ErrorCode.LISTENER_NOT_FOUND and version < _LISTENERS_SINCE:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=reach.offline_replicas(state),
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )
