"""ListGroups (16), versions 0-5: the groups this broker coordinates.

v1 throttles, v3 is flexible, v4 filters by state and tells it, v5 by type. Words are matched in any case, as in Kafka.
"""

from collections.abc import Iterable

from penstock.core.errors import ApiError
from penstock.core.limits import LARGE_ANSWER_ENTRIES
from penstock.core.turns import give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def asks_for_many(services: Services, request: ListGroupsRequest, call: Call) -> bool:
    return services.group_admin.count() > LARGE_ANSWER_ENTRIES


@api(ApiKey.LIST_GROUPS, versions=(0, 5), gives_way=True, asks_for_much=asks_for_many)
async def handle(services: Services, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    del call
    try:
        groups = await services.group_admin.list()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    states, types = _words(request.states_filter), _words(request.types_filter)
    listed = []
    for number, group in enumerate(groups):
        await give_way(number)
        if (not states or group.state.lower() in states) and (not types or group.type.lower() in types):
            listed.append(
                ListedGroup(
                    group_id=group.id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
            )
    return ListGroupsResponse(groups=listed)


def _words(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.lower() for word in words)
