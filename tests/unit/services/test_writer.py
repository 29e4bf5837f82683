"""What may be written to a partition, in which form it is stored, and when it is on its way to the disk."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.frontends.in_memory import NOW_MS, StandingClock
from tests.unit.replication.test_retirement import THREE, NoSyncer
from tests.unit.storage.compacting import keyed
from tests.unit.storage.logs import a_batch, opened

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import TRANSACTIONAL_MASK, BatchHeader, read_header
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.compression import Codec
from penstock.records.reader import Record
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.services.acknowledging import ALL
from penstock.services.batch_opening import Openings
from penstock.services.writer import RefusedRecords, Writer
from penstock.testing.mem_files import MemFiles

BROKER = BrokerConfig.resolve({"log.dirs": "/data"})


def a_writer() -> Writer:
    return Writer(StandingClock(), Openings(None, None))  # type: ignore[arg-type]


def a_topic(settings: dict[str, str] | None = None, *, is_internal: bool = False) -> Topic:
    """With one partition here, of two that there are."""
    config = TopicConfig.resolve({"penstock.ack.after": "written", **(settings or {})}, BROKER)
    log = opened(MemFiles()).log
    partition = Partition("t", bytes(16), 0, log, 5, NoSyncer(), sync_before_ack=False)
    return Topic("t", bytes(16), config, {0: partition}, is_internal=is_internal, count=2)


def written(topic: Topic, batch: bytearray) -> tuple[int, int, int]:
    return a_writer().append(topic, topic.led[0], memoryview(batch), hold=False)


def stored(topic: Topic) -> BatchHeader:
    found = topic.led[0].read(0, 1 << 20, at_least_one=True)
    assert found is not None
    return read_header(found.file.pread(found.size, found.position))


def refusal_of(topic: Topic, batch: bytearray) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        written(topic, batch)
    assert topic.led[0].log.end_offset == 0
    return refused.value.code


@pytest.mark.parametrize(
    ("number", "acks", "code"),
    [
        (1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 2, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
    ids=["led elsewhere", "none", "more copies than replicas"],
)
def test_only_what_is_led_here_and_can_be_acknowledged_is_written_to(
    number: int, acks: int, code: ErrorCode
) -> None:
    topic = a_topic()
    assert a_writer().led(topic, 0, ALL) is topic.led[0]
    with pytest.raises(ApiError) as refused:
        a_writer().led(topic, number, acks)
    assert refused.value.code is code


def test_too_few_in_sync_are_known_before_anything_is_stored() -> None:
    topic = a_topic()
    topic.led[0].lead(5, Leading(1, replace(THREE, isr=(1,)), 2, epoch_start=0, now=0.0))
    with pytest.raises(ApiError) as refused:
        a_writer().led(topic, 0, ALL)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_internal_topics_are_the_brokers_own() -> None:
    topic, writer = a_topic(is_internal=True), a_writer()
    with pytest.raises(ApiError) as refused:
        writer.led(topic, 0, 1)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert writer.append_own(topic.led[0], a_batch((1, 2, 3))) == 2
    assert (writer.batches, writer.records) == (0, 0)  # these count what clients send


def test_a_batch_over_a_limit_of_its_topic_is_refused() -> None:
    large = a_batch(padding=500)
    assert refusal_of(a_topic({"max.message.bytes": "400"}), large) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal_of(a_topic({"internal.segment.bytes": "400"}), large) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_batch_of_a_transaction_that_nobody_began_is_refused() -> None:
    batch = build_batch(
        [Record(0, 1, None, b"x")],
        BatchOptions(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    )
    assert read_header(batch).attributes & TRANSACTIONAL_MASK
    assert refusal_of(a_topic(), batch) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_topic_decides_whose_time_counts() -> None:
    own, brokers = a_topic(), a_topic({"message.timestamp.type": "LogAppendTime"})
    assert written(own, a_batch((1,))) == (0, 0, -1)
    assert written(brokers, a_batch((1,))) == (0, 0, NOW_MS)
    assert stored(own).max_timestamp == 1
    assert stored(brokers).max_timestamp == NOW_MS
    assert refusal_of(a_topic({"message.timestamp.after.max.ms": "1"}), a_batch((NOW_MS + 10,))) is (
        ErrorCode.INVALID_TIMESTAMP
    )


def test_what_is_held_back_is_written_with_the_others_and_before_anybody_is_answered() -> None:
    topics, writer = [a_topic(), a_topic(), a_topic()], a_writer()
    for topic in topics:
        writer.append(topic, topic.led[0], memoryview(a_batch()), hold=True)
        assert topic.led[0].high_watermark == 0
    failing = topics[1].led[0]
    failing.log.failed = True
    with pytest.raises(ApiError):
        writer.write_held()
    assert [topic.led[0].high_watermark for topic in topics] == [1, 0, 1]
    writer.write_held()  # nothing is left
    assert (writer.batches, writer.records) == (3, 3)


def test_a_limit_that_cannot_be_read_holds_up_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, topics = a_writer(), [a_topic() for _ in range(3)]
    for topic in topics:
        writer.append(topic, topic.led[0], memoryview(a_batch()), hold=True)

    def unreadable(end: object) -> None:
        raise StorageError("a retired partition's ceiling cannot be placed")

    monkeypatch.setattr(topics[1].led[0], "limits", SimpleNamespace(move=unreadable))
    with pytest.raises(ApiError) as refused:
        writer.write_held()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [topics[at].led[0].high_watermark for at in (0, 2)] == [1, 1]


@pytest.mark.parametrize("name", ["gzip", "zstd", "uncompressed"])
async def test_batches_are_opened_for_topics_with_a_compression_of_their_own(name: str) -> None:
    topic = a_topic({"compression.type": name})
    writer = Writer(StandingClock(), Openings(asyncio.get_running_loop(), None))
    sent = memoryview(build_batch([Record(0, 1, None, b"x")], BatchOptions(codec=Codec.LZ4)))
    opened = await writer.opened(topic, 0, sent)
    assert read_header(opened).codec == (Codec.NONE if name == "uncompressed" else Codec[name.upper()])
    assert await writer.opened(a_topic(), 0, sent) is sent
    assert await writer.opened(topic, 1, sent) is sent  # led elsewhere: not worth the work


async def test_records_without_keys_are_named_where_the_topic_compacts() -> None:
    topic = a_topic({"cleanup.policy": "compact"})
    writer = Writer(StandingClock(), Openings(asyncio.get_running_loop(), None))
    mixed = keyed([(b"k", b"1"), (None, b"2"), (None, b"3")], time=1)  # type: ignore[list-item]
    with pytest.raises(RefusedRecords) as refused:
        await writer.opened(topic, 0, memoryview(mixed))
    assert [index for index, _ in refused.value.records] == [1, 2]
