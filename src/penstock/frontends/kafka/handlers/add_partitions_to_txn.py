"""AddPartitionsToTxn (24), versions 0-5: partitions join a producer's transaction.

v1 throttles, v2 adds the error PRODUCER_FENCED, v3 is flexible. From v4 on partition leaders ask, for several
transactions at once, and may ask only whether partitions are in it; only brokers of this cluster are answered. v5 adds
the error TRANSACTION_ABORTABLE. One partition that is not there fails all of its transaction: the others get
OPERATION_NOT_ATTEMPTED. Clients may not add internal topics. Served where `penstock.transactions.enable` is set.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.session import NO_BROKER
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.transactions.error_names import Api, error_for
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import AddPartitions
from penstock.groups.transactions.states import BUMPING_VERSION
from penstock.services.coordinator.pending_reply import Gathered, PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_BY_LEADERS_SINCE = 4
_Codes = Mapping[TopicPartition, ErrorCode]


@api(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5))
def handle(
    services: Services, request: AddPartitionsToTxnRequest, call: Call
) -> PendingReply | AddPartitionsToTxnResponse:
    if call.version < _BY_LEADERS_SINCE:
        return _for_client(services, request, call)
    if call.session.broker == NO_BROKER:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _for_leader(services, request)


def _for_client(services: Services, request: AddPartitionsToTxnRequest, call: Call) -> PendingReply:
    wanted = _partitions(request.v3_and_below_topics)
    later = PendingReply(partial(_each, wanted), partial(_client_answer, call.version))
    refused = _refused(services, wanted, by_client=True)
    if refused:
        later.fill(refused)
        return later
    adding = AddPartitions(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, frozenset(wanted)
    )
    transactional_id = request.v3_and_below_transactional_id
    services.transactions.add_or_verify(transactional_id, adding, later, verify_only=False)
    return later


def _for_leader(services: Services, request: AddPartitionsToTxnRequest) -> PendingReply:
    whole = PendingReply(_whole_refused, _leader_answer)
    Gathered(whole, [_transaction(services, transaction) for transaction in request.transactions])
    return whole


def _transaction(services: Services, asked: AddPartitionsToTxnTransaction) -> PendingReply:
    wanted = _partitions(asked.topics)
    later = PendingReply(partial(_each, wanted), partial(_transaction_result, asked.transactional_id))
    refused = _refused(services, wanted, by_client=False)
    if refused:
        later.fill(refused)
        return later
    adding = AddPartitions(asked.producer_id, asked.producer_epoch, frozenset(wanted), BUMPING_VERSION)
    services.transactions.add_or_verify(asked.transactional_id, adding, later, verify_only=asked.verify_only)
    return later


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """Without repeats, in their order."""
    return list(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    )


def _each(wanted: list[TopicPartition], code: ErrorCode) -> _Codes:
    return dict.fromkeys(wanted, code)


def _refused(services: Services, wanted: list[TopicPartition], *, by_client: bool) -> _Codes:
    """Empty: all of them are there, and may be added."""
    wrong: dict[TopicPartition, ErrorCode] = {}
    for place in wanted:
        topic = services.image.topics.get(place.topic)
        if by_client and place.topic in INTERNAL_TOPICS:
            wrong[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= place.partition < len(topic.partitions):
            wrong[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not wrong:
        return wrong
    return {place: wrong.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in wanted}


def _client_answer(version: int, codes: _Codes) -> AddPartitionsToTxnResponse:
    told = {place: error_for(code, Api.ADD_PARTITIONS, version) for place, code in codes.items()}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(told))


def _transaction_result(transactional_id: str, codes: _Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=_by_topic(codes))


def _whole_refused(code: ErrorCode) -> ErrorCode:
    return code


def _leader_answer(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _by_topic(codes: _Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in topics.items()
    ]
