"""ListConfigResources: the names that DescribeConfigs can be asked for."""

from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_config_resources import ListConfigResourcesRequest


async def listed(asked: Asked, version: int, *kinds: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    answer = await asked.ask(ApiKey.LIST_CONFIG_RESOURCES, request, version)
    assert answer.error_code == 0
    return [
        (config_resource.resource_type, config_resource.resource_name)
        for config_resource in answer.config_resources
    ]


async def test_what_has_settings_is_listed_by_kind() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        assert await listed(asked, 0) == []
        assert await listed(asked, 1) == [(2, "orders"), (4, "1"), (8, "1")]
        assert await listed(asked, 1, 4, 16, 32) == [(4, "1")]
        unknown = ListConfigResourcesRequest(resource_types=[2, 99])
        answer = await asked.ask(ApiKey.LIST_CONFIG_RESOURCES, unknown, 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
