"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, appends to or subtracts from single settings.

v1 is flexible. An operation that does not exist makes its resource UNKNOWN_SERVER_ERROR, as in Kafka.
"""

from penstock.config.alter import Alteration, Operation
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
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
    understood = [resource for resource in request.resources if _is_understood(resource)]
    wanted = [
        WantedChange(
            resource.resource_type,
            resource.resource_name,
            [
                Alteration(config.name, Operation(config.config_operation), config.value)
                for config in resource.configs
            ],
        )
        for resource in understood
    ]
    results = await services.configs.alter(wanted, replace=False, validate_only=request.validate_only)
    outcomes = iter(results)
    return IncrementalAlterConfigsResponse(
        responses=[
            _response(resource, next(outcomes) if _is_understood(resource) else _NOT_UNDERSTOOD)
            for resource in request.resources
        ]
    )


_NOT_UNDERSTOOD = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _is_understood(resource: AlterConfigsResource) -> bool:
    return all(config.config_operation in _OPERATIONS for config in resource.configs)


def _response(resource: AlterConfigsResource, error: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
