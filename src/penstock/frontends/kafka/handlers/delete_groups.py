"""DeleteGroups (42), versions 0-2: forget groups without members, with all they committed.

v1 throttles, v2 is flexible.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.core.turns import Turn, give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.services.coordinator.pending_reply import Gathered, PendingReply, arrival
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@api(ApiKey.DELETE_GROUPS, versions=(0, 2))
def handle(
    services: Services, request: DeleteGroupsRequest, call: Call
) -> PendingReply | Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    delete = partial(_delete, services)
    return _gathered(map(delete, names)) if len(names) <= 1 else _in_turns(delete, names)


async def _in_turns(delete: Callable[[str], PendingReply], names: Sequence[str]) -> DeleteGroupsResponse:
    turn = Turn(asyncio.get_running_loop().time)  # by the time: some have offsets, and some of them many
    parts = []
    for number, name in enumerate(names):
        await turn.give_way()
        await give_way(number)
        parts.append(delete(name))
    answer: DeleteGroupsResponse = await arrival(_gathered(parts))
    return answer


def _gathered(parts: Iterable[PendingReply]) -> PendingReply:
    whole = PendingReply(_refusal, lambda results: DeleteGroupsResponse(results=results))
    Gathered(whole, list(parts))
    return whole


def _delete(services: Services, group_id: str) -> PendingReply:
    later = PendingReply(_refusal, partial(_render, group_id))
    services.group_admin.delete(group_id, later)
    return later


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


def _render(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
