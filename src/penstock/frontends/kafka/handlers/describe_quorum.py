"""DescribeQuorum (55), versions 0-2: who keeps the cluster's metadata.

There is no quorum of brokers here: metadata lives in ZooKeeper, or in this broker. So the controller is the one voter
and the leader, its epoch the leader's, and an offset of the metadata log the number of the last change it knows of. As
in Kafka only `__cluster_metadata-0` can be asked for, alone. v1 tells when a voter was last heard of, v2 says errors in
words and where the controller is reached: as the broker that it is, by any listener. The other brokers read the
metadata where it lives, not from the controller, so nothing is known of observers.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

_METADATA_TOPIC, _METADATA_PARTITION = "__cluster_metadata", 0
_UNKNOWN = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
# Another controller was elected while the request was on its way.
_REPLACED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker is no longer the controller.")


@api(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), forwarded=True)
async def handle(services: Services, request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, [wanted.partition_index for wanted in topic.partitions])
        for topic in request.topics
    ]
    if asked != [(_METADATA_TOPIC, [_METADATA_PARTITION])]:
        return DescribeQuorumResponse(
            topics=[
                ResponseTopicData(topic_name=name, partitions=[_failed(index, _UNKNOWN) for index in indexes])
                for name, indexes in asked
            ]
        )
    node, epoch = services.node, services.controller.epoch
    partition = _failed(_METADATA_PARTITION, _REPLACED) if epoch is None else _quorum(services, epoch)
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=node.id,
                listeners=[Listener(name=at.listener, host=at.host, port=at.port) for at in node.endpoints],
            ),
        ],
    )


def _quorum(services: Services, epoch: int) -> ResponsePartitionData:
    now_ms, last_change = services.clock.now_ms(), services.image.number
    voter = ReplicaState(
        replica_id=services.node.id,
        log_end_offset=last_change,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=_METADATA_PARTITION,
        leader_id=services.node.id,
        leader_epoch=epoch,
        high_watermark=last_change,
        current_voters=[voter],
    )


def _failed(index: int, error: ApiError) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=index, error_code=error.code, error_message=error.message)
