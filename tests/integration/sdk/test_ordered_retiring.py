"""ordered_by_key while a partition of the source is retired (SPEC A3, R7)."""

import os
import time
from collections.abc import Callable

import pytest
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, Consumer, Producer, Retry

pytestmark = pytest.mark.skipif(
    os.environ.get("PENSTOCK_SDK_PEER") == "kafka", reason="Apache Kafka retires no partitions"
)


def test_a_key_does_not_overtake_itself_where_its_records_are_moved(
    cluster: Cluster, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(2)
    admin = Admin(cluster.bootstrap)
    retry = Retry(attempts=3, backoff="5s", ordered_by_key=True)
    seen: list[tuple[bytes, int]] = []
    with (
        Producer(cluster.bootstrap) as producer,
        Consumer(cluster.bootstrap, topic, group=topic, retry=retry) as consumer,
    ):
        producer.send(topic, b"1", key="k", partition=1).result()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.receive(0.5)
            if message is None:
                if seen and seen[-1] == (b"2", 0):
                    break
                continue
            with consumer.handling(message):
                seen.append((message.value, message.origin.partition))
                if len(seen) == 1:
                    admin.retire_partitions(topic, 1)
                    # Written to the retired partition until it is moved into the one that stays.
                    while not sum(admin.latest(topic, [0]).values()):
                        producer.send(topic, b"2", key="k", partition=1).result()
                    raise ValueError("no")
    values = [value for value, _ in seen]
    assert values == [b"1", b"1", *[b"2"] * (len(values) - 2)]
    assert seen[-1] == (b"2", 0)
