"""FindCoordinator as Apache Kafka 4.3 answers it while no coordinator is ready."""

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest


@pytest.mark.parametrize("version", range(4))
async def test_one_key_has_no_coordinator(version: int) -> None:
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="group"), version)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert (answer.host, answer.port) == ("", -1)


@pytest.mark.parametrize("version", range(4, 7))
async def test_many_keys_have_no_coordinator(version: int) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
    found = [(one.key, one.error_code, one.node_id, one.host, one.port) for one in answer.coordinators]
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found == [("a", code, -1, "", -1), ("b", code, -1, "", -1)]


async def test_an_unknown_kind_of_key_is_refused() -> None:
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="k", key_type=5), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
