"""AlterConfigs (33), versions 0-2: replaces all of a resource's own settings; what is not named returns to its default.

v2 is flexible. Clients are to use IncrementalAlterConfigs instead, since two such requests undo each other.
"""

from penstock.config.alter import Alteration, Operation
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.configs import WantedChange
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@api(ApiKey.ALTER_CONFIGS, versions=(0, 2))
async def handle(services: Services, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    wanted = await in_turns(_wanted, request.resources)
    results = await services.configs.alter(wanted, replace=True, validate_only=request.validate_only)
    responses = await in_turns(_response, zip(wanted, results, strict=True))
    return AlterConfigsResponse(responses=responses)


def _wanted(resource: AlterConfigsResource) -> WantedChange:
    return WantedChange(
        resource.resource_type,
        resource.resource_name,
        [Alteration(config.name, Operation.SET, config.value) for config in resource.configs],
    )


def _response(answered: tuple[WantedChange, ApiError | None]) -> AlterConfigsResourceResponse:
    change, error = answered
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=change.resource_type,
        resource_name=change.resource_name,
    )
