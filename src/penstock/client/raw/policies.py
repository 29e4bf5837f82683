"""DescribeConfigs: what may delete records of a topic. Only where nothing compacts it every offset has its batch."""

from collections.abc import Iterable

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError, UnsupportedError
from penstock.client.raw.retry_budget import RetryBudget
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_VERSION_MIN = 1
_TOPIC_RESOURCE = 2
_POLICY = "cleanup.policy"


def cleanup_policies(cluster: Cluster, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Left out where the broker does not tell: a topic that is gone, or one that we may not describe."""
    wanted = sorted(set(names))
    budget = cluster.budget("asking for cleanup policies")
    while wanted:
        try:
            return _ask(cluster, wanted, budget)
        except RawError as error:
            budget.pause(error)
    return {}


def _ask(cluster: Cluster, names: list[str], budget: RetryBudget) -> dict[str, frozenset[str]]:
    link = cluster.any_link(budget)
    try:
        version = link.version(ApiKey.DESCRIBE_CONFIGS, at_least=_VERSION_MIN)
    except UnsupportedError:
        return {}
    resources = [
        DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[_POLICY]
        )
        for name in names
    ]
    request = DescribeConfigsRequest(resources=resources)
    answer: DescribeConfigsResponse = link.response(link.send(ApiKey.DESCRIBE_CONFIGS, version, request))
    answered = {result.resource_name: result for result in answer.results}
    if not answered.keys() >= set(names):
        raise ConnectionLostError("a broker left topics out of its answer")
    policies = {name: _policy(answered[name]) for name in names}
    return {name: policy for name, policy in policies.items() if policy}


def _policy(result: DescribeConfigsResult) -> frozenset[str]:
    if result.error_code:
        refused = BrokerError(result.error_code, result.resource_name)
        if refused.retriable and refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise refused
        return frozenset()
    values = [config.value for config in result.configs if config.name == _POLICY and config.value]
    return frozenset(word.strip() for value in values for word in value.split(","))
