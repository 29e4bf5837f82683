"""What the raw client asks of a topic's cleanup policy, and of whom it hears nothing."""

import pytest
from tests.unit.client.raw.fake import QUICK, FakePeer

from penstock.client.raw import RawClient
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.kafka.messages import version_range


def answer(policy: str | None, error: ErrorCode = ErrorCode.NONE) -> DescribeConfigsResponse:
    configs = [DescribeConfigsResourceResult(name="cleanup.policy", value=policy)]
    result = DescribeConfigsResult(
        error_code=error, error_message=None, resource_type=2, resource_name="t", configs=configs
    )
    return DescribeConfigsResponse(results=[result])


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", "delete, compact"])
def test_a_policy_is_told(policy: str) -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.versions[ApiKey.DESCRIBE_CONFIGS] = version_range(ApiKey.DESCRIBE_CONFIGS)
        # One that is just being elected is asked again.
        peer.on(ApiKey.DESCRIBE_CONFIGS, answer(None, ErrorCode.NOT_CONTROLLER), answer(policy))
        assert client.cleanup_policies(["t"]) == {"t": frozenset(policy.replace(" ", "").split(","))}
        assert client.cleanup_policies([]) == {}


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_of_what_is_gone_or_not_ours_to_see_nothing_is_known(error: ErrorCode) -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.versions[ApiKey.DESCRIBE_CONFIGS] = version_range(ApiKey.DESCRIBE_CONFIGS)
        peer.on(ApiKey.DESCRIBE_CONFIGS, answer(None, error))
        assert client.cleanup_policies(["t"]) == {}


def test_nor_of_a_broker_that_has_no_such_api() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        assert client.cleanup_policies(["t"]) == {}
