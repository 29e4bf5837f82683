"""DescribeProducers: which sequence a partition wants next of a producer, for one whose id outlives its process."""

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.raw.stamping import following
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


def next_sequence(cluster: Cluster, at: TopicPartition, producer_id: int) -> int:
    """0 for one that the leader does not remember: then it takes any."""
    budget = cluster.budget(f"asking {at} for its producers")
    while True:
        try:
            return _ask(cluster, at, producer_id, budget)
        except RawError as error:
            cluster.doubt((at,))
            budget.pause(error)


def _ask(cluster: Cluster, at: TopicPartition, producer_id: int, budget: RetryBudget) -> int:
    link = cluster.route(at, budget).link
    version = link.version(ApiKey.DESCRIBE_PRODUCERS)
    request = DescribeProducersRequest(topics=[TopicRequest(name=at.topic, partition_indexes=[at.partition])])
    answer: DescribeProducersResponse = link.call(ApiKey.DESCRIBE_PRODUCERS, version, request)
    for topic in answer.topics:
        for found in topic.partitions:
            if found.error_code != ErrorCode.NONE:
                raise BrokerError(found.error_code, str(at), found.error_message)
            known = {producer.producer_id: producer.last_sequence for producer in found.active_producers}
            last = known.get(producer_id, -1)
            return 0 if last < 0 else following(last, 1)
    raise ConnectionLostError(f"a broker left {at} out of its answer")
