"""DescribeConfigs (32), versions 1-4: the settings of topics and brokers, and where each value comes from.

v1 tells the source of a value and, on request, its synonyms; v3 adds types and, on request, documentation; v4 is
flexible.
"""

import asyncio

from penstock.config.describe import Described
from penstock.core.errors import ApiError
from penstock.core.limits import DEAR_ENTRIES_MAX
from penstock.core.turns import Turn
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import without_repeats
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def asks_for_many(services: Services, request: DescribeConfigsRequest, call: Call) -> bool:
    return len(request.resources) > DEAR_ENTRIES_MAX


@api(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), portions=(("resources",),), asks_for_much=asks_for_many)
async def handle(services: Services, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    turn = Turn(asyncio.get_running_loop().time)
    results = []
    for resource in without_repeats(request.resources, _asked):
        await turn.give_way()  # a topic's settings are some sixty entries, each with its synonyms
        results.append(_result(services, request, resource))
    return DescribeConfigsResponse(results=results)


def _asked(resource: DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    return resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())


def _result(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        described = services.configs.describe(
            resource.resource_type, resource.resource_name, resource.configuration_keys
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message or ""
    else:
        result.configs = [_entry(setting, request) for setting in described]
    return result


def _entry(described: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = described.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=described.type,
        documentation=described.doc if request.include_documentation or not described.doc else None,
    )
