"""`penstock.Producer` against a live broker."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Message as RawMessage
from confluent_kafka import TopicPartition

from penstock import Admin, AsyncProducer, ClientError, Producer
from penstock.client.errors import UnreachableError
from penstock.client.serializers import SerializationError
from penstock.records.partitioner import partition_for
from penstock.testing import BrokerProcess, broker

_names = count(1)
BIG = random.Random(7).randbytes(3_000_000)  # compression does not make it fit


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    with broker({"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(process: BrokerProcess) -> str:
    name = f"topic-{next(_names)}"
    Admin(process.bootstrap).create(name, partitions=3)
    return name


def stored(process: BrokerProcess, topic: str, total: int) -> list[RawMessage]:
    reader = RawConsumer({"bootstrap.servers": process.bootstrap, "group.id": "unused"})
    try:
        reader.assign([TopicPartition(topic, index, 0) for index in range(3)])
        found: list[RawMessage] = []
        while len(found) < total:
            found += reader.consume(total - len(found), 0.5)
        return found
    finally:
        reader.close()


def test_a_message_goes_where_its_delivery_says(process: BrokerProcess, topic: str) -> None:
    when = datetime(2025, 1, 31, 12, tzinfo=UTC)
    with Producer(process.bootstrap) as producer:
        delivery = producer.send(
            topic,
            {"item": 7},
            key="customer-1",
            tags=["checkout", "eu"],
            labels={"shop": "a"},
            headers={"trace": "abc"},
            timestamp=when,
        )
        sent = delivery.result()
    assert sent.topic == topic
    assert sent.partition == partition_for(b"customer-1", 3)
    assert sent.offset == 0
    assert sent.timestamp == round(when.timestamp() * 1000)
    (message,) = stored(process, topic, 1)
    assert message.value() == b'{"item":7}'
    assert message.headers() == [
        ("penstock-id", sent.id.encode()),
        ("tags", b"checkout,eu,shop=a"),
        ("trace", b"abc"),
    ]


def test_every_message_has_its_own_id(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap) as producer, Producer(process.bootstrap) as other:
        producer.send_many(topic, [b"a"] * 500)
        threads = [
            threading.Thread(target=lambda: [other.send(topic, b"b") for _ in range(500)]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ids = {dict(message.headers() or [])["penstock-id"] for message in stored(process, topic, 2000)}
    assert len(ids) == 2000


def test_at_most_once_asks_for_no_answer(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap, delivery="at-most-once") as producer:
        assert producer.send(topic, b"x").result().offset is None
        assert producer.send_many(topic, [b"y"] * 3).result().last_offsets == {}
    assert len(stored(process, topic, 4)) == 4


def test_keys_go_where_java_puts_them_and_the_rest_is_spread(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap, config={"sticky.partitioning.linger.ms": 0}) as producer:
        for number in range(60):
            key = f"key-{number}"
            assert producer.send(topic, b"", key=key).result().partition == partition_for(key.encode(), 3)
        batch = producer.send_many(topic, [b"x"] * 300)
        batch.result()
        assert set(batch.last_offsets) == {0, 1, 2}


def test_a_partitioner_of_ones_own_decides(process: BrokerProcess, topic: str) -> None:
    asked = []

    def last(name: str, key: bytes | None, partitions: int) -> int:
        asked.append((name, key, partitions))
        return partitions - 1

    with Producer(process.bootstrap, partitioner=last) as producer:
        assert producer.send(topic, b"x", key="a").result().partition == 2
        assert list(producer.send_many(topic, [b"x"] * 9).result().last_offsets) == [2]
        assert producer.send(topic, b"x", partition=1).result().partition == 1
    assert asked == [(topic, b"a", 3)] + [(topic, None, 3)] * 9
    with (
        Producer(process.bootstrap, partitioner=lambda *_: 3) as producer,
        pytest.raises(ClientError, match=f"the partitioner chose partition 3: {topic} has 0 to 2"),
    ):
        producer.send(topic, b"x")


def test_full_buffers_make_the_sender_wait(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
        for number in range(500):
            producer.send(topic, str(number), partition=0)
        producer.send_many(topic, (str(number) for number in range(500, 1000)), partition=0)
    assert [int(message.value() or b"") for message in stored(process, topic, 1000)] == list(range(1000))


def test_callbacks_run_although_nobody_waits(process: BrokerProcess, topic: str) -> None:
    told = threading.Event()
    with Producer(process.bootstrap) as producer:
        producer.send(topic, b"x").add_done_callback(lambda delivery: told.set())
        assert told.wait(60)


def test_a_callback_may_send_although_the_buffers_are_full(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap, config={"queue.buffering.max.messages": 2}) as producer:
        for _ in range(20):
            producer.send(topic, b"first").add_done_callback(lambda _: producer.send(topic, b"second"))
    assert Counter(message.value() for message in stored(process, topic, 40)) == {b"first": 20, b"second": 20}


def test_a_callback_that_fails_harms_nobody(process: BrokerProcess, topic: str) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the callback's own")

    told = threading.Event()
    with Producer(process.bootstrap) as producer:
        producer.send(topic, b"1").add_done_callback(fail)
        producer.send(topic, b"2").add_done_callback(lambda _: told.set())
        assert told.wait(60)
        producer.flush()


def test_tombstones_are_not_serialised(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap, serializer="json") as producer:
        producer.send(topic, None, key=1)
    (message,) = stored(process, topic, 1)
    assert message.value() is None
    assert message.key() == (1).to_bytes(8, "big")


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


def test_nobody_at_the_bootstrap_address() -> None:
    with pytest.raises(UnreachableError) as caught:
        Producer("127.0.0.1:1")
    assert "penstock up" in one_line(caught.value)
    with pytest.raises(ClientError, match="write HOST:PORT"):
        Producer("127.0.0.1:port")


def test_an_unknown_topic(process: BrokerProcess) -> None:
    producer = Producer(process.bootstrap)
    with pytest.raises(ClientError) as caught:
        producer.send("nowhere", b"x").result()
    assert "there is no topic nowhere" in one_line(caught.value)
    producer.close()


def test_a_message_too_large_and_nothing_stored(process: BrokerProcess, topic: str) -> None:
    with Producer(process.bootstrap) as producer:
        with pytest.raises(ClientError) as caught:
            producer.send(topic, BIG).result()
        assert "too large" in one_line(caught.value)
        producer.send(topic, b"small").result()
    (message,) = stored(process, topic, 1)
    assert message.value() == b"small"


def test_a_value_that_cannot_be_serialised_leaves_the_producer_well(
    process: BrokerProcess, topic: str
) -> None:
    with Producer(process.bootstrap) as producer:
        with pytest.raises(SerializationError) as caught:
            producer.send(topic, object())
        assert "cannot be sent" in one_line(caught.value)
        producer.send(topic, b"x").result()


def test_flush_tells_of_failures_nobody_asked_about(process: BrokerProcess, topic: str) -> None:
    producer = Producer(process.bootstrap)
    for _ in range(2):
        producer.send(topic, BIG)
    with pytest.raises(ClientError, match="2 sends failed, the first: a message is too large"):
        producer.flush()
    producer.flush()
    asked = producer.send(topic, BIG)
    assert asked.exception() is not None
    producer.close()


def test_a_closed_producer_says_so(process: BrokerProcess, topic: str) -> None:
    producer = Producer(process.bootstrap)
    producer.close()
    producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send(topic, b"x")


def test_coroutines_send_and_wait(process: BrokerProcess, topic: str) -> None:
    async def work() -> None:
        async with AsyncProducer(process.bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
            deliveries = [await producer.send(topic, str(number), key="k") for number in range(200)]
            sent = [await delivery for delivery in deliveries]
            assert [delivery.offset for delivery in sent] == list(range(200))
            batch = await producer.send_many(topic, [b"x"] * 10)
            assert batch.total == 10
            with pytest.raises(ClientError, match="too large"):
                await (await producer.send(topic, BIG))
            await producer.flush()

    asyncio.run(work())
    partitions = Counter(message.partition() for message in stored(process, topic, 210))
    assert partitions[partition_for(b"k", 3)] >= 200
