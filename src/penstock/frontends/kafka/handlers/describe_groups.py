"""DescribeGroups (15), versions 0-6: the members of groups, with their subscriptions and assignments.

v1 throttles, v3 tells what the client may do, v4 adds static members, v5 is flexible, v6 says when there is no such
group; before that such a group is Dead.
"""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import DEAR_ENTRIES_MAX, LARGE_ANSWER_ENTRIES
from penstock.core.turns import Turn, give_way
from penstock.frontends.kafka.authorized import GROUP_OPERATIONS, NOT_ASKED
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import without_repeats
from penstock.groups.classic.states import GroupState
from penstock.services.coordinator.group_admin import GroupDescription
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_SINCE = 6


def asks_for_many(services: Services, request: DescribeGroupsRequest, call: Call) -> bool:
    """Or for few that have very many members."""
    groups = request.groups
    return len(groups) > DEAR_ENTRIES_MAX or services.group_admin.members(groups) > LARGE_ANSWER_ENTRIES


@api(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), portions=(("groups",),), asks_for_much=asks_for_many)
async def handle(services: Services, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    turn = Turn(asyncio.get_running_loop().time)
    asked: dict[str, PendingReply] = {}
    for group_id in without_repeats(request.groups, str):
        await turn.give_way()
        later = asked[group_id] = PendingReply(_same, _same)
        services.group_admin.describe(group_id, later)
    described = []
    for group_id, later in asked.items():
        found = await arrival(later)
        if isinstance(found, ErrorCode):
            described.append(_without_members(group_id, operations, call.version, found))
        else:
            described.append(await _rendered(group_id, operations, found))
    return DescribeGroupsResponse(groups=described)


def _same(answer: ErrorCode | GroupDescription) -> ErrorCode | GroupDescription:
    return answer


async def _rendered(group_id: str, operations: int, found: GroupDescription) -> DescribedGroup:
    members = []
    for number, member in enumerate(found.members):
        await give_way(number)
        members.append(
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=members,
        authorized_operations=operations,
    )


def _without_members(group_id: str, operations: int, version: int, found: ErrorCode) -> DescribedGroup:
    if found is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=found)
    dead = GroupState.DEAD.value
    if version < _NOT_FOUND_SINCE:
        return DescribedGroup(group_id=group_id, group_state=dead, authorized_operations=operations)
    return DescribedGroup(
        group_id=group_id, group_state=dead, error_code=found, error_message=f"Group {group_id} not found."
    )
