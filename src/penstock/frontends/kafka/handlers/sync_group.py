"""SyncGroup (14), versions 0-5: the leader brings the plan of a generation, every member gets its part.

v1 throttles, v3 adds static members, v4 is flexible, v5 names the protocol that the plan was made for, which must be
the group's. Nobody is answered before the plan is committed.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.classic.requests import Sync, SyncReply
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_SINCE = 5


@api(ApiKey.SYNC_GROUP, versions=(0, 5))
def handle(services: Services, request: SyncGroupRequest, call: Call) -> SyncGroupResponse | PendingReply:
    if call.version >= _PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    later = PendingReply(SyncReply, _render)
    sync = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {assignment.member_id: assignment.assignment for assignment in request.assignments},
    )
    services.memberships.sync(sync, later)
    return later


def _render(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
