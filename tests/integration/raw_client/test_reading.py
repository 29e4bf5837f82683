"""The raw client reads what librdkafka wrote: metadata, offsets and whole batches of a real broker."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import values_in

from penstock.client.raw import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    OffsetAt,
    OffsetOutOfRangeError,
    RawClient,
    RawOptions,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
)
from penstock.testing import BrokerProcess, broker

COUNT = 3000
VALUES = [b"%05d" % number + b"x" * 995 for number in range(COUNT)]
AT = TopicPartition("orders", 0)
EMPTY = TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result()
        producer = Producer(
            {"bootstrap.servers": process.bootstrap, "linger.ms": 5, "batch.num.messages": 100}
        )
        for number, value in enumerate(VALUES):
            producer.produce("orders", value, partition=0, timestamp=1000 + number)
        assert producer.flush(60) == 0
        yield process


@pytest.fixture
def client(running: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as raw_client:
        yield raw_client


def test_topics_and_their_partitions(client: RawClient) -> None:
    info = client.describe(["orders"])["orders"]
    assert (info.name, info.partitions, info.internal) == ("orders", (0, 1), False)
    assert info.topic_id is not None
    assert client.topics()["orders"] == info


def test_a_missing_topic_is_named_and_not_made(client: RawClient) -> None:
    with pytest.raises(UnknownTopicError, match="no topic missing, nothing") as caught:
        client.describe(["missing", "orders", "nothing"])
    assert caught.value.names == ("missing", "nothing")
    assert set(client.topics()) == {"orders"}
    with pytest.raises(UnknownPartitionError, match="has no partition 7, only 0 to 1"):
        client.offsets({TopicPartition("orders", 7): LATEST})


def test_offsets_by_name_and_by_time(client: RawClient) -> None:
    assert client.offsets({AT: LATEST, EMPTY: LATEST}) == {AT: OffsetAt(COUNT, -1), EMPTY: OffsetAt(0, -1)}
    assert client.offsets({AT: EARLIEST})[AT].offset == 0
    assert client.offsets({AT: 1500}) == {AT: OffsetAt(500, 1500)}
    assert client.offsets({AT: 1000 + COUNT}) == {AT: OffsetAt(-1, -1)}
    assert client.offsets({AT: MAX_TIMESTAMP}) == {AT: OffsetAt(COUNT - 1, 999 + COUNT)}


@pytest.mark.parametrize("fetch_bytes", [1, 50_000, 150_000, 4 << 20])
def test_every_record_once_and_in_order(running: BrokerProcess, fetch_bytes: int) -> None:
    options = RawOptions(fetch_bytes=fetch_bytes)
    with RawClient(running.bootstrap, options) as client:
        answers = list(client.fetch(AT, 0, COUNT))
    assert [value for answer in answers for value in values_in(answer.records)] == VALUES
    assert {(answer.log_start, answer.high_watermark, answer.last_stable) for answer in answers} == {
        (0, COUNT, COUNT)
    }
    if fetch_bytes <= 150_000:
        assert len(answers) > 10


def test_a_range_comes_with_the_batches_that_hold_its_ends(client: RawClient) -> None:
    answers = list(client.fetch(AT, 1234, 1240))
    values = [value for answer in answers for value in values_in(answer.records)]
    assert set(VALUES[1234:1240]) <= set(values)
    assert len(values) <= 200
    assert list(client.fetch(AT, 10, 10)) == []


def test_fetches_and_other_requests_share_a_connection(client: RawClient) -> None:
    first, second = client.fetch(AT, 0, COUNT), client.fetch(AT, 1500, COUNT)
    seen = [len(values_in(next(first).records)), len(values_in(next(second).records))]
    assert client.offsets({AT: LATEST})[AT].offset == COUNT
    first.close()
    seen[1] += sum(len(values_in(answer.records)) for answer in second)
    assert seen[0] > 0
    assert seen[1] >= COUNT - 1500


def test_an_offset_out_of_range_tells_the_range(client: RawClient) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="holds 0 to 3000") as caught:
        next(client.fetch(AT, COUNT + 10, COUNT + 20))
    assert (caught.value.offset, caught.value.log_start, caught.value.end) == (COUNT + 10, 0, COUNT)
