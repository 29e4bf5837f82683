"""Who a producer is to brokers: an id that makes its batches known, so that each is stored once."""

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, RawError
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.raw.stamping import Producer
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def new_producer(cluster: Cluster) -> Producer:
    """Under an id that nobody else has; asks until there is an answer, or the time for one is over."""
    budget = cluster.budget("asking for a producer id")
    while True:
        try:
            return _init_producer_id(cluster, budget)
        except RawError as error:
            budget.pause(error)


def _init_producer_id(cluster: Cluster, budget: RetryBudget) -> Producer:
    link = cluster.any_link(budget)
    version = link.version(ApiKey.INIT_PRODUCER_ID)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
    answer: InitProducerIdResponse = link.call(ApiKey.INIT_PRODUCER_ID, version, request)
    if answer.error_code:
        raise BrokerError(answer.error_code, "asking for a producer id")
    return Producer(answer.producer_id, answer.producer_epoch)
