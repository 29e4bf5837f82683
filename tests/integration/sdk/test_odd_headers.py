"""A header whose name is not UTF-8: any client can write one, and librdkafka's binding cannot read it."""

import time
from collections.abc import Callable

from tests.integration.sdk.conftest import Cluster

from penstock import Consumer, Producer, Retry
from penstock.client.raw import RawClient, TopicPartition
from penstock.records.batch import stamp_crc
from penstock.records.builder import build_batch
from penstock.records.reader import Record

_PATIENCE_SECONDS = 20


def test_a_consumer_gets_past_a_header_that_is_not_text(
    cluster: Cluster, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    record = Record(offset=0, timestamp=1, key=b"k", value=b"odd", headers=(("NAME", b"x"),))
    batch = bytearray(build_batch([record]))
    at = batch.index(b"NAME")
    batch[at : at + 4] = b"\xff\xfe\xff\xfe"
    stamp_crc(memoryview(batch), 0, len(batch))
    with RawClient(cluster.bootstrap) as raw:
        raw.produce(TopicPartition(topic, 0), batch)
    with Producer(cluster.bootstrap) as producer:
        producer.send(topic, b"next").result()
    seen = []
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with Consumer(cluster.bootstrap, topic, group=topic, retry=Retry(attempts=2, backoff="50ms")) as consumer:
        while len(seen) < 3 and time.monotonic() < deadline:
            message = consumer.receive(0.2)
            if message is None:
                continue
            with consumer.handling(message):
                seen.append((message.value, message.attempt))
                if message.value == b"odd":
                    raise ValueError("no")
    assert sorted(seen) == [(b"next", 1), (b"odd", 1), (b"odd", 2)]
