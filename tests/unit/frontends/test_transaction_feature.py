"""What ApiVersions tells of transactions: nothing, unless they are served, by all brokers."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.services.transactions.serving import SETTINGS

from penstock.core.errors import ProtocolError
from penstock.frontends.kafka.registry import TRANSACTION_APIS
from penstock.frontends.kafka.served import SERVED
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest

SERVED_HERE = TRANSACTION_APIS & {*SERVED}


async def versions(asked: Asked, version: int) -> Any:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return await asked.ask(ApiKey.API_VERSIONS, request, version)


def features(answer: Any) -> Any:
    supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
    finalized = [
        (each.name, each.max_version_level, each.min_version_level) for each in answer.finalized_features
    ]
    return supported, finalized, answer.finalized_features_epoch


@pytest.mark.parametrize("version", range(5))
async def test_where_they_are_not_served_nothing_is_told(version: int) -> None:
    async with Machine().broker() as asked:
        answer = await versions(asked, version)
        assert not TRANSACTION_APIS & {each.api_key for each in answer.api_keys}
        assert features(answer) == ([], [], -1)
        assert {broker.transaction_version for broker in asked.services.image.brokers.values()} == {0}


@pytest.mark.parametrize("version", range(5))
async def test_where_they_are_served_by_all_the_level_is_told(version: int) -> None:
    async with Machine(SETTINGS).broker() as asked:
        answer = await versions(asked, version)
        assert {each.api_key for each in answer.api_keys} >= SERVED_HERE
        supported = [("transaction.version", 0, 2)] if version >= 4 else []
        level = ([("transaction.version", 2, 2)], 2) if version >= 3 else ([], -1)
        assert features(answer) == (supported, *level)


async def test_a_broker_that_cannot_keeps_all_from_telling() -> None:
    async with Machine(SETTINGS).broker() as asked:
        brokers = asked.services.image.brokers
        brokers[2] = replace(brokers[1], id=2, transaction_version=0)
        assert features(await versions(asked, 4)) == ([], [], -1)
        brokers[2] = replace(brokers[1], id=2)
        assert features(await versions(asked, 4))[2] == 2


@pytest.mark.parametrize("key", sorted(SERVED_HERE))
async def test_where_they_are_not_served_the_connection_is_closed(key: int) -> None:
    async with Machine().broker() as asked:
        connected = Connected(asked)
        with pytest.raises(ProtocolError, match="it is not served"):
            connected.send_raw(key, SERVED[key][1])
