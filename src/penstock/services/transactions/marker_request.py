"""Markers for partitions that another broker leads, as WriteTxnMarkers (27), version 2, says it."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.core.error_codes import ErrorCode
from penstock.groups.transactions.layouts import TopicPartition
from penstock.replication.transactions import MarkerToWrite
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSION = 2


def request_for(markers: Iterable[tuple[MarkerToWrite, Sequence[TopicPartition]]]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=_by_topic(partitions),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, partitions in markers
        ]
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]


def outcomes_in(
    response: WriteTxnMarkersResponse,
) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
    """By producer id: two ends of one producer are never under way at once."""
    told: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in response.markers:
        codes = told.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                codes[TopicPartition(topic.name, partition.partition_index)] = _code(partition.error_code)
    return told


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # of a later version of Penstock
        return ErrorCode.UNKNOWN_SERVER_ERROR
