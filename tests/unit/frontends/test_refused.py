"""APIs that are advertised for nothing but a refusal that clients understand, and what the log says of it."""

import logging

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.core.error_codes import ErrorCode
from penstock.services.refusals import NEXT_GENERATION_GROUPS, SASL, SHARE_GROUPS, TRANSACTIONS
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest
from penstock.wire.kafka.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest
from penstock.wire.kafka.generated.sasl_handshake import SaslHandshakeRequest
from penstock.wire.kafka.generated.share_group_heartbeat import ShareGroupHeartbeatRequest


@pytest.mark.parametrize("version", [0, 1])
async def test_next_generation_groups_are_refused_as_by_kafka_without_them(version: int) -> None:
    async with Machine().broker() as asked:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
        answer = await asked.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, version)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        NEXT_GENERATION_GROUPS,
    )


async def test_share_groups_are_refused_as_by_kafka_without_them() -> None:
    async with Machine().broker() as asked:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="m")
        answer = await asked.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request, 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, SHARE_GROUPS)


@pytest.mark.parametrize("version", [0, 1])
async def test_sasl_is_refused_as_on_kafkas_plaintext_listeners(version: int) -> None:
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


async def test_no_feature_is_finalized_that_is_not_served() -> None:
    request = ApiVersionsRequest(client_software_name="tester", client_software_version="1")
    async with Machine().broker() as asked:
        answer = await asked.ask(ApiKey.API_VERSIONS, request, 4)
    assert (answer.supported_features, answer.finalized_features) == ([], [])
    served = {api.api_key for api in answer.api_keys}
    assert not served & {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.SHARE_FETCH, ApiKey.CONSUMER_GROUP_DESCRIBE}


async def test_the_log_has_a_line_for_each_client_and_api(caplog: pytest.LogCaptureFixture) -> None:
    transactional = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    asked_for = [
        (ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="tx", key_type=1), 3, TRANSACTIONS),
        (ApiKey.INIT_PRODUCER_ID, transactional, 5, TRANSACTIONS),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest(), 1, NEXT_GENERATION_GROUPS),
        (ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest(), 1, SHARE_GROUPS),
        (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), 1, SASL),
    ]
    async with Machine().broker() as asked:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                for key, request, version, _ in asked_for:
                    await asked.ask(key, request, version)
    told = [record.getMessage() for record in caplog.records if "refused" in record.message]
    assert [line.partition(": ")[2] for line in told] == [why for *_, why in asked_for]
    assert all("client 'tester' at 127.0.0.1" in line for line in told)
