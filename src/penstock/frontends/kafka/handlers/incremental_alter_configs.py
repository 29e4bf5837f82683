"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, appends to or subtracts from single settings.

v1 is flexible. An operation that does not exist makes its resource UNKNOWN_SERVER_ERROR, as in Kafka.
"""

from penstock.config.alter import Alteration, Operation
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.configs import WantedChange
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_OPERATIONS = frozenset(Operation)


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    wanted = await in_turns(_wanted, request.resources)
    understood = [change for change in wanted if change is not None]
    outcomes = iter(
        await services.configs.alter(understood, replace=False, validate_only=request.validate_only)
    )
    results = [_NOT_UNDERSTOOD if change is None else next(outcomes) for change in wanted]
    responses = await in_turns(_response, zip(request.resources, results, strict=True))
    return IncrementalAlterConfigsResponse(responses=responses)


_NOT_UNDERSTOOD = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _wanted(resource: AlterConfigsResource) -> WantedChange | None:
    """None: with an operation that does not exist."""
    if not all(config.config_operation in _OPERATIONS for config in resource.configs):
        return None
    return WantedChange(
        resource.resource_type,
        resource.resource_name,
        [
            Alteration(config.name, Operation(config.config_operation), config.value)
            for config in resource.configs
        ],
    )


def _response(answered: tuple[AlterConfigsResource, ApiError | None]) -> AlterConfigsResourceResponse:
    resource, error = answered
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
