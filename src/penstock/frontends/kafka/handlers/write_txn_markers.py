"""WriteTxnMarkers (27), versions 1-2: a coordinator tells leaders how transactions ended.

v1 is flexible, v2 says of which version of transactions each was. Each marker is answered once it is committed. Who
did not prove to be a broker may only abort what hangs, as tools do (`services.transactions.hanging`). Served where
`penstock.transactions.enable` is set.
"""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.session import NO_BROKER
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.transactions import MarkerToWrite
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Written side by side: each waits for its commit, and those of one partition share it. For what a client wants
# coordinators are asked, so that goes one by one.
_AT_ONCE = 200


@api(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2))
async def handle(services: Services, request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    is_broker = call.session.broker != NO_BROKER
    write = services.marker_writer.write if is_broker else services.hanging.abort
    turns = asyncio.Semaphore(_AT_ONCE if is_broker else 1)

    async def written(topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        async with turns:
            return await write(topic, partition, marker)

    asked = [
        (marker, topic.name, partition)
        for marker in request.markers
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(written(name, partition, _to_write(marker)))
            for marker, name, partition in asked
        ]
    codes = iter([task.result() for task in running])
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition, error_code=next(codes)
                            )
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _to_write(marker: WritableTxnMarker) -> MarkerToWrite:
    return MarkerToWrite(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
