"""The raw client against Apache Kafka: the newest versions of its requests, transactions, and a server that dies."""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import make_batch, values_in, wait_until
from tools.peers import ApacheKafka

from penstock.client.raw import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Delivery,
    Fetched,
    OffsetAt,
    OffsetOutOfRangeError,
    RawClient,
    RawOptions,
    TopicPartition,
    TopicRecreatedError,
    UnknownTopicError,
)
from penstock.records.batch import read_header
from penstock.records.compression import Codec
from penstock.wire.kafka.api_keys import ApiKey

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka({"auto.create.topics.enable": "true"}) as apache:
        yield apache


@pytest.fixture
def client(kafka: ApacheKafka) -> Iterator[RawClient]:
    with RawClient(kafka.bootstrap) as raw_client:
        yield raw_client


@pytest.fixture
def topic(kafka: ApacheKafka, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", ".").rstrip("]")[:200]
    make_topic(kafka, name)
    return name


def make_topic(kafka: ApacheKafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()


def values(answers: list[Fetched]) -> list[bytes | None]:
    return [value for answer in answers for value in values_in(answer.records)]


def test_the_newest_versions_are_spoken(client: RawClient, topic: str) -> None:
    client.describe([topic])
    (link,) = client._cluster._links.values()
    assert link.version(ApiKey.FETCH) >= 17
    assert link.version(ApiKey.PRODUCE) >= 13
    assert link.version(ApiKey.LIST_OFFSETS) >= 10


def test_topics_are_described_and_never_made(client: RawClient, topic: str) -> None:
    info = client.describe([topic])[topic]
    assert (info.partitions, info.internal) == ((0, 1), False)
    with pytest.raises(UnknownTopicError, match="not-there"):
        client.describe(["not-there"])
    assert topic in client.topics()
    assert "not-there" not in client.topics()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_is_read_whole(kafka: ApacheKafka, topic: str, codec: str) -> None:
    sent = [b"%05d" % number + b"x" * 500 for number in range(3000)]
    settings = {
        "compression.type": codec,
        "linger.ms": 5,
        "enable.idempotence": True,
    }  # in order, also when sent again
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **settings})
    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=0, timestamp=1000 + number)
    assert producer.flush(60) == 0
    at = TopicPartition(topic, 0)
    with RawClient(kafka.bootstrap, RawOptions(fetch_bytes=20_000)) as client:
        ends = client.offsets({at: LATEST, TopicPartition(topic, 1): LATEST})
        assert [end.offset for end in ends.values()] == [len(sent), 0]
        answers = list(client.fetch(at, 0, len(sent)))
        assert client.offsets({at: 1500}) == {at: OffsetAt(500, 1500)}
        assert client.offsets({at: MAX_TIMESTAMP})[at].offset == len(sent) - 1
    assert values(answers) == sent
    assert Codec(read_header(answers[0].records).codec).name.lower() == codec
    assert {(answer.log_start, answer.high_watermark) for answer in answers} == {(0, len(sent))}


def test_a_batch_larger_than_a_fetch_comes_whole(kafka: ApacheKafka, topic: str) -> None:
    at = TopicPartition(topic, 0)
    with RawClient(kafka.bootstrap, RawOptions(fetch_bytes=1000)) as client:
        client.produce(at, make_batch([b"x" * 500_000]))
        client.produce(at, make_batch([b"y" * 300_000]))
        answers = list(client.fetch(at, 0, 2))
    assert [len(value or b"") for value in values(answers)] == [500_000, 300_000]


def test_an_offset_out_of_range_tells_the_range(client: RawClient, topic: str) -> None:
    at = TopicPartition(topic, 0)
    client.produce(at, make_batch([b"a", b"b"]))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        next(client.fetch(at, 50, 60))
    assert (caught.value.log_start, caught.value.end) == (0, 2)


def test_aborted_transactions(kafka: ApacheKafka, client: RawClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for number, keep in enumerate((True, False, True, False)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(60) == 0
        (producer.commit_transaction if keep else producer.abort_transaction)(60)
    at = TopicPartition(topic, 0)

    def stable_end() -> int:
        return client.offsets({at: LATEST}, committed=True)[at].offset

    # Four records and four markers; a server writes the markers after it has answered.
    end = 8
    wait_until(lambda: stable_end() == end, "the last marker is written")

    plain = list(client.fetch(at, 0, end, committed=False))
    assert [answer.aborted for answer in plain] == [()] * len(plain)
    committed = list(client.fetch(at, 0, end, committed=True))
    assert b"".join(bytes(answer.records) for answer in committed) == b"".join(
        bytes(answer.records) for answer in plain
    )
    aborted = [transaction for answer in committed for transaction in answer.aborted]
    assert [transaction.first_offset for transaction in aborted] == [2, 6]
    headers = {read_header(answer.records).producer_id for answer in committed}
    assert {transaction.producer_id for transaction in aborted} == headers

    # While a transaction is open, those who read committed records see the end before it.
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    assert stable_end() == end
    assert client.offsets({at: LATEST}, committed=False)[at].offset == end + 1
    producer.abort_transaction(60)
    wait_until(lambda: stable_end() == end + 2, "the open transaction is over")


def test_a_topic_made_anew_is_refused(kafka: ApacheKafka, client: RawClient, topic: str) -> None:
    at = TopicPartition(topic, 0)
    for number in range(3):
        client.produce(at, make_batch([b"%d" % number * 100]))
    with RawClient(kafka.bootstrap, RawOptions(fetch_bytes=1)) as reader:
        stream = reader.fetch(at, 0, 3)
        next(stream)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result()
        wait_until(lambda: topic not in reader.topics(), "the topic is gone")
        make_topic(kafka, topic)
        wait_until(lambda: topic in reader.topics(), "the topic is back")
        # The answer that was sent ahead may still be of the old one.
        with pytest.raises((TopicRecreatedError, UnknownTopicError)):
            list(stream)


def test_nothing_lost_and_nothing_twice_over_a_killed_server() -> None:
    """Read and written while the server is killed and comes back.

    The records are of today: Kafka goes by their time to forget producers, and after a crash stores the repeats of one
    whose records are old a second time.
    """
    count = 300
    now_ms = time.time_ns() // 1_000_000
    deliveries: list[Delivery] = []
    failures: list[BaseException] = []
    with ApacheKafka() as kafka:
        make_topic(kafka, "killed")
        at = TopicPartition("killed", 0)

        def write() -> None:
            try:
                with RawClient(kafka.bootstrap) as client, client.producer() as producer:
                    for number in range(count):
                        deliveries.append(producer.send(at, make_batch([b"%d" % number], timestamp=now_ms)))
                        if number % 50 == 0:
                            producer.flush()
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(deliveries) >= count // 3 or bool(failures), "some are written")
        kafka.kill()
        kafka.start()
        writer.join()
        assert not failures
        assert [delivery.offset for delivery in deliveries] == list(range(count))
        with RawClient(kafka.bootstrap, RawOptions(fetch_bytes=2000)) as client:
            assert client.offsets({at: EARLIEST})[at].offset == 0
            stream = client.fetch(at, 0, count)
            read = values([next(stream)])
            kafka.kill()
            restarting = threading.Thread(target=kafka.start)
            restarting.start()
            read += values(list(stream))
            restarting.join()
    assert read == [b"%d" % number for number in range(count)]
