"""The raw client writes whole batches, which everybody else then reads."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import make_batch, read_log

from penstock.client.raw import (
    LATEST,
    BatchError,
    ProduceError,
    RawClient,
    RawOptions,
    TopicPartition,
    UnknownTopicError,
)
from penstock.core.error_codes import ErrorCode
from penstock.records.batch import read_header
from penstock.testing import BrokerProcess, broker

PARTITIONS = 3


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", ".").rstrip("]")[:200]
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config={"max.message.bytes": "100000"})])[
        name
    ].result()
    return str(name)


@pytest.fixture
def client(running: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as raw_client:
        yield raw_client


def test_one_batch_at_a_time_gets_its_offset(client: RawClient, topic: str, running: BrokerProcess) -> None:
    at = TopicPartition(topic, 1)
    given = make_batch([b"a", b"b", b"c"])
    before = bytes(given)
    assert [client.produce(at, given), client.produce(at, bytes(given), acks=1)] == [0, 3]
    assert client.produce(at, memoryview(given), acks=0) == -1
    assert client.produce(at, given) == 9
    assert bytes(given) == before, "the caller's bytes are not written to"
    assert read_log(running.port, topic, 1) == [b"a", b"b", b"c"] * 4


def test_many_batches_over_many_partitions_keep_their_order(
    client: RawClient, topic: str, running: BrokerProcess
) -> None:
    sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    deliveries = []
    with client.producer() as producer:
        for number in range(600):
            value = b"%d" % number * 20
            sent[number % PARTITIONS].append(value)
            at = TopicPartition(topic, number % PARTITIONS)
            deliveries.append(producer.send(at, make_batch([value])))
    for partition in range(PARTITIONS):
        assert read_log(running.port, topic, partition) == sent[partition]
        offsets = [delivery.offset for delivery in deliveries if delivery.at.partition == partition]
        assert offsets == list(range(len(sent[partition])))


def test_librdkafka_reads_them(client: RawClient, topic: str, running: BrokerProcess) -> None:
    client.produce(TopicPartition(topic, 0), make_batch([b"for", b"all"]))
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([Assigned(topic, 0, 0)])
    try:
        assert [message.value() for message in consumer.consume(2, 60)] == [b"for", b"all"]
    finally:
        consumer.close()


def test_held_bytes_are_bounded(running: BrokerProcess, topic: str) -> None:
    batch = make_batch([b"x" * 10_000])
    options = RawOptions(in_flight_bytes_max=3 * len(batch), request_bytes_max=2 * len(batch))
    with RawClient(running.bootstrap, options) as client, client.producer() as producer:
        for number in range(100):
            producer.send(TopicPartition(topic, number % PARTITIONS), batch)
            assert producer.held_bytes <= options.in_flight_bytes_max
        producer.flush()
        assert producer.held_bytes == 0
        ends = client.offsets({TopicPartition(topic, number): LATEST for number in range(PARTITIONS)})
    assert sum(end.offset for end in ends.values()) == 100


def test_a_refused_batch_ends_the_producer_and_not_the_client(client: RawClient, topic: str) -> None:
    at = TopicPartition(topic, 0)
    producer = client.producer()
    producer.send(at, make_batch([b"fits"]))
    with pytest.raises(ProduceError, match=r"MESSAGE_TOO_LARGE.*send smaller batches") as caught:  # noqa: PT012
        producer.send(at, make_batch([b"x" * 200_000]))
        producer.flush()
    assert (caught.value.code, caught.value.at) == (ErrorCode.MESSAGE_TOO_LARGE, at)
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE"):
        producer.send(at, make_batch([b"after"]))
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE"):
        producer.flush()
    with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE"):
        client.produce(at, make_batch([b"x" * 200_000]))
    assert client.produce(at, make_batch([b"goes on"])) == 1


def test_what_is_no_batch_is_refused_before_it_is_sent(client: RawClient, topic: str) -> None:
    at = TopicPartition(topic, 0)
    good = make_batch([b"good"])
    damaged = bytearray(good)
    damaged[-1] ^= 1
    for bad, why in (
        (b"", "no whole batch"),
        (good[:-1], "no whole batch"),
        (good + good, "bytes follow the batch"),
        (damaged, "CRC"),
    ):
        with pytest.raises(BatchError, match=why):
            client.produce(at, bad)
    assert client.produce(at, good) == 0
    with pytest.raises(UnknownTopicError, match="missing"):
        client.produce(TopicPartition("missing", 0), good)


def test_a_batch_that_was_read_can_be_written_again(client: RawClient, topic: str) -> None:
    at, copy = TopicPartition(topic, 0), TopicPartition(topic, 1)
    client.produce(at, make_batch([b"first"]))
    client.produce(at, make_batch([b"second", b"third"]))
    (fetched,) = client.fetch(at, 0, 3)
    size = read_header(fetched.records).size_bytes
    assert client.produce(copy, fetched.records[size:]) == 0
    assert client.produce(copy, fetched.records[:size]) == 2
