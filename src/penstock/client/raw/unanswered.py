"""Writing with acks=0: without a producer id, with nothing to wait for or to keep in order, since nobody answers."""

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import RawError
from penstock.client.raw.produce_request import VERSION_MIN, request_parts, topic_key
from penstock.client.raw.stamping import Batch, Delivery, Producer, checked, stamped_head
from penstock.client.topic_partition import TopicPartition
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.primitives import Buffer
from penstock.wire.kafka.produce import TOPIC_IDS_SINCE


def produce_unanswered(cluster: Cluster, at: TopicPartition, batch: Buffer) -> None:
    """Sent once to whoever seems to lead; nobody says whether it was stored."""
    _, view = checked(at, batch)
    head = stamped_head(view, Producer(-1, -1), -1)
    stamped = Batch(Delivery(at), head, view[len(head) :], 0.0)
    budget = cluster.budget(f"writing to {at}")
    while True:
        try:
            route = cluster.route(at, budget)
            at_most = TOPIC_IDS_SINCE - 1 if route.topic_id is None else 0x7FFF
            version = route.link.version(ApiKey.PRODUCE, at_least=VERSION_MIN, at_most=at_most)
            key = topic_key(at.topic, route.topic_id, version)
            parts = request_parts(version, 0, cluster.options.request_timeout_ms, {key: [stamped]})
            route.link.send_parts(ApiKey.PRODUCE, version, parts, answered=False)
        except RawError as error:
            cluster.doubt((at,))
            budget.pause(error)
        else:
            return
