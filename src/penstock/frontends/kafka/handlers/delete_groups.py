"""DeleteGroups (42), versions 0-2: forget groups without members, with all they committed.

v1 throttles, v2 is flexible.
"""

from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.coordinator.pending_reply import Gathered, PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@api(ApiKey.DELETE_GROUPS, versions=(0, 2))
def handle(services: Services, request: DeleteGroupsRequest, call: Call) -> PendingReply:
    del call
    whole = PendingReply(_refusal, lambda results: DeleteGroupsResponse(results=results))
    parts = []
    for group_id in dict.fromkeys(request.groups_names):
        later = PendingReply(_refusal, partial(_render, group_id))
        services.group_admin.delete(group_id, later)
        parts.append(later)
    Gathered(whole, parts)
    return whole


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


def _render(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
