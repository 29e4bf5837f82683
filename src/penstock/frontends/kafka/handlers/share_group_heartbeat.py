"""ShareGroupHeartbeat (76), version 1: how members of share groups (KIP-932) join and stay.

Not served yet: every heartbeat is answered with UNSUPPORTED_VERSION, as by Kafka where `share.version` is 0. Advertised
for the same reason as ConsumerGroupHeartbeat.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.refusals import SHARE_GROUPS
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


@api(ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1))
def handle(
    services: Services, request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    services.refusals.tell(call.client_id, call.session.peer, "ShareGroupHeartbeat", SHARE_GROUPS)
    return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=SHARE_GROUPS)
