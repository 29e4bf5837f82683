"""ListConfigResources (74), versions 0-1: what has settings that DescribeConfigs can be asked for.

v0 lists client metrics only, of which there are none here; v1 lists the kinds that are asked for, or all: topics,
brokers and their loggers. Client metrics and groups have no settings of their own.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.configs import ResourceType
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KINDS_SINCE = 1
_CLIENT_METRICS, _GROUP = 16, 32
_EMPTY_KINDS = (_CLIENT_METRICS, _GROUP)
_ALL_KINDS = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, *_EMPTY_KINDS)


@api(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1))
def handle(
    services: Services, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    wanted: list[int] = [_CLIENT_METRICS]
    if call.version >= _KINDS_SINCE:
        wanted = list(dict.fromkeys(request.resource_types or _ALL_KINDS))
    if any(kind not in _ALL_KINDS for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in _names(services, kind)
        ]
    )


def _names(services: Services, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return [topic.name for topic in services.image.all_topics()]
    return [] if kind in _EMPTY_KINDS else [str(broker) for broker in services.image.brokers]
