"""Producing over a scripted broker: order and sequences through every kind of failure."""

import dataclasses
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.client.raw.fake import (
    CLOSE,
    QUICK,
    SILENCE,
    TOPIC_ID,
    FakePeer,
    batch_at,
    offset_found,
    produced,
)

from penstock.client.raw import (
    BatchError,
    OptionError,
    ProduceError,
    RawClient,
    TimedOutError,
    TopicPartition,
    TopicRecreatedError,
    UnreachableError,
)
from penstock.client.raw.stamping import Producer, following, stamped_head
from penstock.core.error_codes import ErrorCode
from penstock.records.batch import HEADER_BYTES, BatchHeader, check_batch
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import produce
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdResponse

AT = TopicPartition("t", 0)
E = ErrorCode


@pytest.fixture
def peer() -> Iterator[FakePeer]:
    with FakePeer() as fake:
        yield fake


def open_client(peer: FakePeer, **options: Any) -> RawClient:
    return RawClient(peer.bootstrap, dataclasses.replace(QUICK, **options))


def batch_of(count: int) -> bytes:
    return batch_at(0, [b"%d" % number for number in range(count)])


def sent_headers(peer: FakePeer) -> list[BatchHeader]:
    """One per batch the broker saw, in order, each with a good CRC."""
    return [
        check_batch(memoryview(partition.records))
        for asked in peer.asked[ApiKey.PRODUCE]
        for topic in asked.message.topic_data
        for partition in topic.partition_data
    ]


def sequences(peer: FakePeer) -> list[int]:
    return [header.base_sequence for header in sent_headers(peer)]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version(peer: FakePeer, version: int) -> None:
    peer.versions[ApiKey.PRODUCE] = (version, version)
    peer.on(ApiKey.PRODUCE, produced(50))
    with open_client(peer) as client:
        assert client.produce(AT, batch_of(3), acks=1) == 50
    (asked,) = peer.asked[ApiKey.PRODUCE]
    assert (asked.version, asked.message.acks, asked.message.transactional_id) == (version, 1, None)
    (topic,) = asked.message.topic_data
    assert topic.name == ("" if version >= 13 else "t")
    assert topic.topic_id == (TOPIC_ID.bytes if version >= 13 else bytes(16))
    (header,) = sent_headers(peer)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 0)


def test_the_header_is_stamped_and_the_rest_is_left_alone() -> None:
    options = BatchOptions(base_offset=77, leader_epoch=4, producer_id=1, producer_epoch=1, base_sequence=8)
    given = build_batch([Record(offset=77, timestamp=5, key=b"k", value=b"v")], options)
    view = memoryview(given)
    head = stamped_head(view, Producer(123, 4), 99)
    sent = bytes(head) + bytes(view[HEADER_BYTES:])
    header = check_batch(memoryview(sent))
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 4, 99)
    assert (header.base_timestamp, header.record_count) == (5, 1)


def test_sequences_count_records_and_wrap() -> None:
    assert following(0, 5) == 5
    assert following(0x7FFFFFFF, 1) == 0
    assert following(0x7FFFFFFE, 3) == 1


def test_sequences_run_per_partition(peer: FakePeer) -> None:
    peer.leaders["t"] = {0: 1, 1: 1}
    peer.on(ApiKey.PRODUCE, _accept_all)
    with open_client(peer) as client, client.producer() as producer:
        for number in range(4):
            producer.send(TopicPartition("t", number % 2), batch_of(2))
            producer.flush()
    assert sequences(peer) == [0, 0, 2, 2]
    assert len(peer.asked[ApiKey.INIT_PRODUCER_ID]) == 1


def _accept_all(request: produce.ProduceRequest) -> produce.ProduceResponse:
    answer = produce.ProduceResponse()
    for topic in request.topic_data:
        rows = [
            produce.PartitionProduceResponse(index=partition.index, base_offset=1)
            for partition in topic.partition_data
        ]
        answer.responses.append(
            produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    return answer


def test_five_requests_are_under_way_and_no_more(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, SILENCE)
    with open_client(peer) as client:
        producer = client.producer()
        for _ in range(8):
            producer.send(AT, batch_of(1))
        peer.wait_for_asked(ApiKey.PRODUCE, 5)
        assert len(producer._flights) == 5
        assert sequences(peer) == [0, 1, 2, 3, 4]


class SequencedLog:
    """Stores a producer's batches as a broker does: each once, in order. The first request is refused for now."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.refused = False
        self.all_sent = threading.Event()

    def __call__(self, request: produce.ProduceRequest) -> produce.ProduceResponse:
        header = check_batch(memoryview(request.topic_data[0].partition_data[0].records or b""))
        if not self.refused:
            self.refused = True
            assert self.all_sent.wait(60), "the client waits for an answer before it sends the next"
            return produced(error=E.NOT_LEADER_OR_FOLLOWER)
        if header.base_sequence > len(self.stored):
            return produced(error=E.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if header.base_sequence == len(self.stored):
            self.stored += range(header.base_sequence, header.base_sequence + header.record_count)
        return produced(100 + header.base_sequence)


def test_what_failed_is_sent_again_in_order(peer: FakePeer) -> None:
    """The first of three is refused for now, so the two behind it are gaps; all come again under their sequences."""
    log = SequencedLog()
    peer.on(ApiKey.PRODUCE, log)
    with open_client(peer) as client:
        producer = client.producer()
        deliveries = [producer.send(AT, batch_of(count)) for count in (1, 2, 3)]
        log.all_sent.set()
        producer.flush()
    assert [delivery.offset for delivery in deliveries] == [100, 101, 103]
    assert sequences(peer) == [0, 1, 3, 0, 1, 3]
    assert log.stored == list(range(6))


def test_a_lost_connection_repeats_what_is_unknown(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, produced(10), CLOSE, produced(11), produced(12))
    with open_client(peer) as client:
        producer = client.producer()
        first = producer.send(AT, batch_of(1))
        producer.flush()
        later = [producer.send(AT, batch_of(1)) for _ in range(2)]
        producer.flush()
    assert [first.offset, *(delivery.offset for delivery in later)] == [10, 11, 12]
    assert sequences(peer)[0] == 0
    assert sequences(peer)[-2:] == [1, 2]


def test_a_repeat_that_the_broker_knows_is_delivered(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, CLOSE, produced(error=E.DUPLICATE_SEQUENCE_NUMBER))
    with open_client(peer) as client:
        assert client.produce(AT, batch_of(1)) == -1
    assert sequences(peer) == [0, 0]


def test_a_moved_leader_is_followed(peer: FakePeer) -> None:
    with FakePeer(node=2) as other:
        peer.nodes[2] = other

        def moved(_: Any) -> Any:
            peer.leaders["t"] = {0: 2}
            return produced(error=E.NOT_LEADER_OR_FOLLOWER)

        peer.on(ApiKey.PRODUCE, produced(0), moved)
        other.on(ApiKey.PRODUCE, produced(1))
        with open_client(peer) as client:
            assert [client.produce(AT, batch_of(1)) for _ in range(2)] == [0, 1]
        assert sequences(other) == [1]


@pytest.mark.parametrize(
    ("code", "tries"),
    [
        (E.MESSAGE_TOO_LARGE, 1),
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 1),
        (E.UNKNOWN_PRODUCER_ID, 1),
        (E.INVALID_PRODUCER_EPOCH, 1),
        (E.CORRUPT_MESSAGE, 3),
    ],
)
def test_what_is_refused_for_good_ends_the_producer(peer: FakePeer, code: ErrorCode, tries: int) -> None:
    peer.on(ApiKey.PRODUCE, *[produced(error=code)] * tries, produced(5))
    with open_client(peer) as client:
        producer = client.producer()
        for attempt in (lambda: producer.send(AT, batch_of(1)) and producer.flush(), producer.flush):
            with pytest.raises(ProduceError, match=code.name) as caught:
                attempt()
            assert (caught.value.code, caught.value.at) == (code, AT)
        assert len(peer.asked[ApiKey.PRODUCE]) == tries
        assert client.produce(AT, batch_of(1)) == 5, "another producer is not concerned"


def test_silence_is_a_lost_connection(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, SILENCE, produced(3))
    with open_client(peer, request_timeout_ms=200) as client:
        assert client.produce(AT, batch_of(1)) == 3
    assert sequences(peer) == [0, 0]


def test_delivery_ends_with_the_time_there_is(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, produced(error=E.NOT_ENOUGH_REPLICAS))
    with open_client(peer, delivery_timeout_ms=100) as client:
        with pytest.raises(TimedOutError, match=r"writing to t-0: gave up .*NOT_ENOUGH_REPLICAS"):
            client.produce(AT, batch_of(1))
        peer.on(ApiKey.PRODUCE, CLOSE)
        with pytest.raises(UnreachableError, match="penstock doctor"):
            client.produce(AT, batch_of(1))


def test_retries_are_counted(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, produced(error=E.NOT_ENOUGH_REPLICAS))
    with (
        open_client(peer, retries_max=2) as client,
        pytest.raises(TimedOutError, match="NOT_ENOUGH_REPLICAS"),
    ):
        client.produce(AT, batch_of(1))
    assert len(peer.asked[ApiKey.PRODUCE]) == 3


def test_an_answer_that_leaves_a_batch_out_is_no_answer(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, produce.ProduceResponse(), produced(4))
    with open_client(peer) as client:
        assert client.produce(AT, batch_of(1)) == 4


def test_a_topic_made_anew_is_not_written_on(peer: FakePeer) -> None:
    def remade(_: Any) -> Any:
        peer.topic_ids["t"] = uuid.UUID(int=8)
        return produced(error=E.UNKNOWN_TOPIC_ID)

    peer.on(ApiKey.PRODUCE, remade)
    with open_client(peer) as client, pytest.raises(TopicRecreatedError):
        client.produce(AT, batch_of(1))


def test_a_producer_id_is_asked_for_again(peer: FakePeer) -> None:
    loading = InitProducerIdResponse(error_code=E.COORDINATOR_LOAD_IN_PROGRESS)
    peer.on(ApiKey.INIT_PRODUCER_ID, loading, CLOSE, InitProducerIdResponse(producer_id=31, producer_epoch=2))
    peer.on(ApiKey.PRODUCE, produced(0))
    with open_client(peer) as client:
        client.produce(AT, batch_of(1))
    assert sent_headers(peer)[0].producer_id == 31


def test_an_exception_in_the_block_abandons_what_is_under_way(peer: FakePeer) -> None:
    peer.on(ApiKey.PRODUCE, SILENCE)
    with open_client(peer) as client:
        producer = client.producer()
        with pytest.raises(KeyError), producer:
            raise KeyError(producer.send(AT, batch_of(1)))
        assert producer.held_bytes == 0


def test_what_this_client_does_not_write(peer: FakePeer) -> None:
    with open_client(peer) as client:
        for bad in (
            BatchOptions(transactional=True),
            BatchOptions(control=True),
            BatchOptions(last_offset_delta=3),
        ):
            given = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v")], bad)
            with pytest.raises(BatchError, match="t-0 cannot be sent"):
                client.produce(AT, given)
    with open_client(peer, acks=0) as client, pytest.raises(OptionError, match="needs answers"):
        client.producer()


def test_an_answer_that_came_with_another_one_is_not_waited_for(peer: FakePeer) -> None:
    sent = threading.Event()

    def late(_: Any) -> Any:
        assert sent.wait(60)
        return produced(6)

    peer.on(ApiKey.PRODUCE, late)
    peer.on(ApiKey.LIST_OFFSETS, offset_found(7))
    # Without a wake-up call: so long would the test take.
    with open_client(peer, request_timeout_ms=3_600_000) as client:
        producer = client.producer()
        delivery = producer.send(AT, batch_of(1))
        sent.set()
        assert client.offsets({AT: -1})[AT].offset == 7
        producer.flush()
    assert delivery.offset == 6


def test_time_runs_only_while_the_producer_is_at_work(
    peer: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller who takes minutes for his next batch has not used up the time of the last one."""
    peer.on(ApiKey.PRODUCE, SILENCE, produced(1))
    with open_client(peer) as client:
        producer = client.producer()
        delivery = producer.send(AT, batch_of(1))
        away_s = QUICK.delivery_timeout_ms / 1000 + QUICK.request_timeout_ms / 1000
        monkeypatch.setattr("penstock.client.raw.producing.time", _Later(away_s))
        producer.flush()
    assert delivery.offset == 1


class _Later:
    """The clock, some time later."""

    def __init__(self, later_s: float) -> None:
        self._later_s = later_s

    def monotonic(self) -> float:
        return time.monotonic() + self._later_s


def test_a_new_leader_gets_nothing_while_the_old_one_has_not_answered(peer: FakePeer) -> None:
    """It would take the second batch for the first of this producer, and refuse the one before it."""
    second = TopicPartition("t", 1)

    def moved(_: Any) -> Any:
        for broker in (peer, other, third):
            broker.leaders = {"t": {0: 2, 1: 2}}
        return produced(error=E.NOT_LEADER_OR_FOLLOWER, partition=1)

    def taken(request: Any) -> Any:
        answer = produced(0)
        answer.responses[0].partition_responses = [
            produce.PartitionProduceResponse(index=partition.index, base_offset=0)
            for topic in request.topic_data
            for partition in topic.partition_data
        ]
        return answer

    with FakePeer(node=2) as other, FakePeer(node=3) as third:
        for broker in (peer, other, third):
            broker.nodes = {1: peer, 2: other, 3: third}
            broker.leaders = {"t": {0: 1, 1: 3}}
        peer.on(ApiKey.PRODUCE, SILENCE)
        third.on(ApiKey.PRODUCE, moved)
        other.on(ApiKey.PRODUCE, taken)
        with open_client(other, request_timeout_ms=300, requests_in_flight_max=5) as client:
            producer = client.producer()
            producer.send(AT, batch_of(3))
            peer.wait_for_asked(ApiKey.PRODUCE, 1)
            # Word of another leader comes by way of another partition.
            producer.send(second, batch_of(1))
            third.wait_for_asked(ApiKey.PRODUCE, 1)
            for _ in range(3):
                producer.send(second, batch_of(1))
                producer.send(AT, batch_of(2))
            producer.flush()
        seen = [
            (partition.index, check_batch(memoryview(partition.records)).base_sequence)
            for asked in other.asked[ApiKey.PRODUCE]
            for topic in asked.message.topic_data
            for partition in topic.partition_data
        ]
        assert [sequence for index, sequence in seen if index == 0] == [0, 3, 5, 7]
