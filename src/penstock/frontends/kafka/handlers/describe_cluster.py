"""DescribeCluster (60), versions 0-2: the brokers, the controller and what this client may do with the cluster.

v1 adds the kind of endpoint that is asked about: brokers (1) are answered here, controllers (2) have no endpoint of
their own. v2 can also ask for fenced brokers: those that are known and not there now. Where they were is not known.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from penstock.frontends.kafka.registry import Call, api
from penstock.services.cluster_view import controller_id, live_brokers, live_ids
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2
_UNKNOWN_PORT = -1


@api(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2))
def handle(services: Services, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=services.image.cluster_id,
        controller_id=controller_id(services),
        brokers=_brokers(services, call.session.listener, fenced=request.include_fenced_brokers),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def _brokers(services: Services, listener: str, *, fenced: bool) -> list[DescribeClusterBroker]:
    brokers = [
        DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in live_brokers(services, listener)
    ]
    if fenced:
        live = live_ids(services)
        gone = [life for life in services.image.lives if life not in live]
        brokers += [
            DescribeClusterBroker(broker_id=broker_id, port=_UNKNOWN_PORT, is_fenced=True)
            for broker_id in gone
        ]
    return sorted(brokers, key=lambda broker: broker.broker_id)
