"""Heartbeat (12), versions 0-4: a member is alive, and learns whether its group rebalances.

v1 throttles, v3 adds static members, v4 is flexible. While groups are being loaded every heartbeat is good, as in
Kafka: a member must not give up its partitions because the broker restarted.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(ApiKey.HEARTBEAT, versions=(0, 4))
def handle(services: Services, request: HeartbeatRequest, call: Call) -> PendingReply:
    del call
    later = PendingReply(_refusal, _render)
    services.memberships.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, later
    )
    return later


def _refusal(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


def _render(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
