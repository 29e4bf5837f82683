"""FindCoordinator as Apache Kafka 4.3 answers it: for groups with this broker, and a refusal of the rest."""

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.core.error_codes import ErrorCode
from penstock.services.refusals import TRANSACTIONS
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest


@pytest.mark.parametrize("version", range(4))
async def test_a_group_is_coordinated_here(version: int) -> None:
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="group"), version)
        assert (answer.error_code, answer.node_id) == (ErrorCode.NONE, 1)
        assert (answer.host, answer.port) == ("127.0.0.1", asked.broker.port)
        assert answer.error_message == ("NONE" if version >= 1 else "")


@pytest.mark.parametrize("version", range(4, 7))
async def test_many_groups_are_coordinated_here(version: int) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
    assert [
        (coordinator.key, coordinator.error_code, coordinator.node_id) for coordinator in answer.coordinators
    ] == [
        ("a", 0, 1),
        ("b", 0, 1),
    ]


async def test_the_first_question_makes_the_topic_as_kafka_would() -> None:
    async with Machine({"offsets.topic.num.partitions": "7"}).broker() as asked:
        await asked.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="group"), 3)
        topic = asked.services.image.topics["__consumer_offsets"]
        assert len(topic.partitions) == 7
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }


@pytest.mark.parametrize("version", range(1, 4))
async def test_transactions_are_refused_with_what_librdkafka_stops_at(version: int) -> None:
    async with Machine().broker() as asked:
        request = FindCoordinatorRequest(key="tx", key_type=1)
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (answer.error_message, answer.node_id) == (TRANSACTIONS, -1)


@pytest.mark.parametrize("version", range(4, 7))
async def test_transactions_are_refused_with_a_message(version: int) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
    found = [
        (coordinator.key, coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port)
        for coordinator in answer.coordinators
    ]
    code = ErrorCode.UNSUPPORTED_VERSION
    assert found == [("a", code, -1, "", -1), ("b", code, -1, "", -1)]
    assert {coordinator.error_message for coordinator in answer.coordinators} == {TRANSACTIONS}


async def test_an_unknown_kind_of_key_is_refused() -> None:
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="k", key_type=5), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.INVALID_REQUEST), (6, ErrorCode.UNSUPPORTED_VERSION)]
)
async def test_share_groups_are_refused(version: int, code: ErrorCode) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["group:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    async with Machine().broker() as asked:
        (answer,) = (await asked.ask(ApiKey.FIND_COORDINATOR, request, version)).coordinators
    assert (answer.error_code, bool(answer.error_message)) == (code, True)
