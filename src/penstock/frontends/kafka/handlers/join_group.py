"""JoinGroup (11), versions 0-9: become a member of a group, and wait until its next generation is formed.

v1 tells the rebalance timeout apart from the session timeout; v4 lets a new member come back with an id it is given
first (MEMBER_ID_REQUIRED); v5 adds static members; v6 is flexible; v7 answers the protocol type; v8 carries a reason;
v9 tells a returning static leader that its old plan still holds.
"""

from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.classic.requests import Join, JoinReply
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_REBALANCE_TIMEOUT_SINCE = 1
_ID_REQUIRED_SINCE = 4
_NO_PROTOCOL_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


@api(ApiKey.JOIN_GROUP, versions=(0, 9))
def handle(services: Services, request: JoinGroupRequest, call: Call) -> PendingReply:
    version = call.version
    client_id = call.client_id or ""
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{call.session.peer}",
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms
            if version >= _REBALANCE_TIMEOUT_SINCE
            else request.session_timeout_ms
        ),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        # Each once: supporters are counted by name, and one that counted twice would leave no name that all support.
        protocols=tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items()),
        id_required=version >= _ID_REQUIRED_SINCE,
        may_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
        new_member_id=(
            ""
            if request.member_id
            else services.memberships.new_member_id(client_id, request.group_instance_id)
        ),
    )
    later = PendingReply(partial(_refusal, request.member_id), partial(_render, version))
    services.memberships.join(join, later)
    return later


def _refusal(member_id: str, code: ErrorCode) -> JoinReply:
    return JoinReply(code, member_id)


def _render(version: int, reply: JoinReply) -> JoinGroupResponse:
    protocol = reply.protocol
    if protocol is None and version < _NO_PROTOCOL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members or ()
        ],
    )
