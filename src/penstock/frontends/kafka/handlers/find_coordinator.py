"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

v1 asks for transactions too and explains errors, v3 is flexible, v4 asks for many keys at once, v5 adds a
transaction error, v6 share groups. The topic that holds the groups, or the transactions, is made when it is first asked
for, before the answer leaves; in a cluster clients are told to ask again, as Kafka does. Share groups are not served
yet, nor are transactions unless `penstock.transactions.enable` is set: that is UNSUPPORTED_VERSION, with a message that
the Java client shows. Clients that ask for one key at a time (librdkafka, aiokafka, KafkaJS) are told
TRANSACTIONAL_ID_AUTHORIZATION_FAILED of a transaction, with the same message: librdkafka asks again for ever after
anything else.
"""

from collections.abc import Awaitable

from penstock.controller.image_queries import places_of
from penstock.controller.placement import machine_count
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.partitioning import partition_of
from penstock.services.cluster_view import leader_node
from penstock.services.refusals import SHARE_GROUPS, TRANSACTIONS
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.kafka.leaders import NodeEndpoint

GROUP, TRANSACTION, SHARE = range(3)
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
MANY_KEYS_SINCE = 4
SHARE_SINCE = 6
_NONE = -1
_NOT_AVAILABLE = "The coordinator is not available."


@api(ApiKey.FIND_COORDINATOR, versions=(0, 6), portions=(("coordinator_keys",),))
def handle(
    services: Services, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    is_transaction = request.key_type == TRANSACTION and services.config.now.penstock_transactions_enable
    if request.key_type == GROUP or is_transaction:
        runtime = services.transaction_coordinator if is_transaction else services.coordinator
        if not runtime.has_topic:
            return _after_creation(services, request, call)
        return _found(services, request, call)
    if request.key_type == TRANSACTION or (request.key_type == SHARE and call.version >= SHARE_SINCE):
        return _not_served(services, request, call)
    message = f"no such coordinator type {request.key_type}"
    return _refused(ErrorCode.INVALID_REQUEST, message, request, call)


def _not_served(services: Services, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    why = TRANSACTIONS if request.key_type == TRANSACTION else SHARE_GROUPS
    services.refusals.tell(call.client_id, call.session.peer, "FindCoordinator", why)
    if call.version < MANY_KEYS_SINCE:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why, request, call)
    return _refused(ErrorCode.UNSUPPORTED_VERSION, why, request, call)


async def _after_creation(
    services: Services, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    is_new = _TOPICS[request.key_type] not in services.image.topics
    machines = machine_count(services.image.brokers, places_of(services.image)) or 1
    try:
        if request.key_type == TRANSACTION:
            await services.transaction_coordinator.create_topic(machines)
        else:
            await services.coordinator.create_topic(machines)
    except ApiError as error:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or "", request, call)
    if is_new and len(services.image.brokers) > 1:
        # Others hear of it in a moment; named at once, a coordinator might not know yet that it is one.
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE, request, call)
    return _found(services, request, call)


def _found(services: Services, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    if call.version < MANY_KEYS_SINCE:
        node = _coordinator(services, request.key_type, request.key, call.session.listener)
        if node is None:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE, request, call)
        return FindCoordinatorResponse(
            error_message="NONE",  # Kafka's word for it
            node_id=node.id,
            host=node.host,
            port=node.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        node = _coordinator(services, request.key_type, key, call.session.listener)
        if node is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            coordinators.append(Coordinator(key=key, node_id=_NONE, port=_NONE, error_code=code))
        else:
            coordinators.append(Coordinator(key=key, node_id=node.id, host=node.host, port=node.port))
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(services: Services, key_type: int, key: str, listener: str) -> NodeEndpoint | None:
    """Whoever leads the partition that the key falls into, where clients of the listener find it."""
    topic = services.image.topics.get(_TOPICS[key_type])
    if topic is None:
        return None
    return leader_node(services, topic.partitions[partition_of(key, len(topic.partitions))], listener)


def _refused(
    code: ErrorCode, message: str, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    if call.version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=_NONE, port=_NONE)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=_NONE, port=_NONE, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )
