"""Real librdkafka: a consumer of two topics, of which one is deleted, goes on and says nothing that is not so."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer, Retry
from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


@pytest.mark.parametrize(
    "options",
    [
        {"delivery": "at-most-once", "commit_every": 0},
        {"batch_messages": 1},
        {"batch_messages": 1, "commit_every": 0},
        {},
    ],
    ids=["at-most-once-0", "one", "one-0", "default"],
)
def test_the_other_topic_is_read_on(
    running: BrokerProcess,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin = Admin(running.bootstrap)
    name = request.node.callspec.id
    a, b = f"a-{name}", f"b-{name}"
    admin.create(a, partitions=1)
    admin.create(b, partitions=1)
    config = {"topic.metadata.refresh.interval.ms": 3000}
    with Producer(running.bootstrap) as producer:
        producer.send_many(a, [b"a0", b"a1"]).result()
        producer.send_many(b, [b"b0"]).result()
        with Consumer(running.bootstrap, [a, b], group=name, config=config, **options) as consumer:
            seen = 0
            while seen < 3:
                seen += consumer.receive(1.0) is not None
            admin.delete(a)
            producer.send_many(b, [b"b1", b"b2"])
            deadline = time.monotonic() + 30
            while (a, 0) in consumer.assignment or seen < 5:
                seen += consumer.receive(0.1) is not None  # raises nothing
                assert time.monotonic() < deadline
    assert not [record for record in caplog.records if f"in {b}," in record.getMessage()]


@pytest.mark.parametrize("ordered", [False, True])
def test_the_other_topic_is_read_on_with_retries(running: BrokerProcess, ordered: bool) -> None:
    admin = Admin(running.bootstrap)
    a, b = f"a-ordered-{ordered}", f"b-ordered-{ordered}"
    config = {"topic.metadata.refresh.interval.ms": 500}
    retry = Retry(2, "100ms", ordered_by_key=ordered)
    seen: list[bytes] = []
    with Producer(running.bootstrap) as producer:
        for topic in (a, b):
            admin.create(topic, partitions=1)
            producer.send_many(topic, [b"0"]).result()
        with Consumer(running.bootstrap, [a, b], group=a, config=config, retry=retry) as consumer:

            def take(count: int) -> None:
                deadline = time.monotonic() + 30
                while len(seen) < count or (count > 2 and (a, 0) in consumer.assignment):
                    message = consumer.receive(0.2)
                    seen.extend([] if message is None else [message.value])
                    assert time.monotonic() < deadline, seen

            take(2)
            admin.delete(a)
            producer.send_many(b, [b"1"]).result()
            take(3)
            producer.send_many(b, [b"2"]).result()
            take(4)
    assert seen[2:] == [b"1", b"2"]
