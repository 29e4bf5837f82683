"""LeaveGroup (13), versions 0-5: members go, so that the others need not wait for their sessions to end.

v1 throttles, v3 takes many members at once, also by instance id alone, and answers for each; v4 is flexible, v5 carries
a reason.
"""

from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.classic.requests import Leaver, LeaveReply
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_MANY_SINCE = 3


@api(ApiKey.LEAVE_GROUP, versions=(0, 5))
def handle(services: Services, request: LeaveGroupRequest, call: Call) -> PendingReply:
    if call.version < _MANY_SINCE:
        leavers = [Leaver(request.member_id, None)]
    else:
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]
    later = PendingReply(_refusal, partial(_render, call.version))
    services.memberships.leave(request.group_id, leavers, later)
    return later


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


def _render(version: int, reply: ErrorCode | list[LeaveReply]) -> LeaveGroupResponse:
    if isinstance(reply, ErrorCode):
        return LeaveGroupResponse(error_code=reply)
    if version < _MANY_SINCE:
        return LeaveGroupResponse(error_code=reply[0].error)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
            )
            for member in reply
        ]
    )
