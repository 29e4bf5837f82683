"""Compacted topics on a live broker (M7): the latest value of each key, tombstones and their end, keys required."""

import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.raw import RawClient, produce_request, produced
from tests.unit.storage.compacting import keyed

from penstock.core.error_codes import ErrorCode
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey

POLL_S = 0.05
FAST = {
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
ONE_BATCH = {"linger.ms": 60_000}  # until they are flushed, however slow the machine
Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(FAST) as process:
        yield process


def create(running: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    settings = COMPACTED | {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, config=settings)])[topic].result()


def produce(running: BrokerProcess, topic: str, pairs: Sequence[Pair], **config: object) -> list[KafkaError]:
    """Store them in order, in batches of some; returns the errors."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10, **config})
    for key, value in pairs:
        producer.produce(topic, value, key, on_delivery=delivered)
    assert producer.flush(60) == 0
    return errors


def consume(running: BrokerProcess, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Everything up to the end, as (offset, key, value)."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """The test's own timeout ends what never comes true."""
    while not condition():
        time.sleep(POLL_S)


def metric(running: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"{running.console_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_for_rounds(running: BrokerProcess, before: float) -> None:
    wait_for(lambda: metric(running, "penstock_cleaner_rounds_total") > before)


def fill_segment(running: BrokerProcess, topic: str) -> None:
    """Enough to seal what is before it, under a key that no test looks at."""
    produce(running, topic, [(b"filler", b"." * 5000)] * 9, **{"batch.num.messages": 1})


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_latest_value_of_each_key_is_read_back(running: BrokerProcess, compression: str) -> None:
    topic = f"latest-{compression}"
    create(running, topic)
    pairs = [(b"k%d" % (number % 50), b"%d" % number + b"x" * 50) for number in range(2000)]
    assert not produce(running, topic, pairs, **{"compression.type": compression})
    fill_segment(running, topic)
    wait_for(lambda: len(consume(running, topic)) < 80)
    found = [(offset, key, value) for offset, key, value in consume(running, topic) if key != b"filler"]
    latest = {key: (offset, value) for offset, (key, value) in enumerate(pairs)}
    assert {key: (offset, value) for offset, key, value in found} == latest
    assert [offset for offset, _, _ in found] == sorted(offset for offset, _ in latest.values())


def test_what_was_compacted_survives_kill_and_restart() -> None:
    with broker(FAST) as running:
        create(running, "t")
        produce(running, "t", [(b"k%d" % (number % 50), b"%d" % number) for number in range(5000)])
        fill_segment(running, "t")
        wait_for(lambda: len(consume(running, "t")) < 80)
        wait_for(lambda: metric(running, "penstock_cleaner_dirty_ratio") == 0)
        before = consume(running, "t")
        running.kill()
        running.start()
        assert consume(running, "t") == before
        running.stop()
        running.start()
        assert consume(running, "t") == before


def test_kills_in_the_middle_of_compaction_lose_nothing() -> None:
    """The real thing: files, processes, kill -9 wherever it happens to strike. Every step is in the model's test."""
    with broker(FAST) as running:
        create(running, "t", internal_segment_bytes="100000", delete_retention_ms="0")
        latest: dict[bytes | None, bytes | None] = {}
        for round_number in range(6):
            pairs: list[Pair] = []
            for number in range(3000):
                value = (
                    None if number % 50 == round_number else b"%d-%d" % (round_number, number) + b"." * 200
                )
                pairs.append((b"k%d" % (number * 7 % 300), value))
            rounds = metric(running, "penstock_cleaner_rounds_total")
            assert not produce(running, "t", pairs)
            latest.update(pairs)
            if round_number % 2:
                wait_for_rounds(running, rounds)
            running.kill()
            running.start()
            found = {key: value for _, key, value in consume(running, "t")}
            assert {key: value for key, value in found.items() if value is not None} == {
                key: value for key, value in latest.items() if value is not None
            }
        wait_for(lambda: metric(running, "penstock_cleaner_dirty_ratio") == 0)
        assert metric(running, "penstock_cleaner_parked_partitions") == 0
        directory = running.data_dir / "topics" / "t" / "Partition-0"
        assert not [
            path.name for path in directory.iterdir() if "cleaned" in path.name or "swap" in path.name
        ]


def test_a_tombstone_goes_after_delete_retention(running: BrokerProcess) -> None:
    create(running, "graves", delete_retention_ms="200")
    produce(running, "graves", [(b"a", b"1"), (b"b", b"1"), (b"a", None)])

    def keys_after_another_round() -> set[bytes | None]:
        fill_segment(running, "graves")
        return {key for _, key, _ in consume(running, "graves")}

    wait_for(lambda: keys_after_another_round() == {b"b", b"filler"})
    assert (1, b"b", b"1") in consume(running, "graves")


def test_a_record_without_a_key_is_refused(running: BrokerProcess) -> None:
    create(running, "keyed")
    errors = produce(running, "keyed", [(b"a", b"1"), (None, b"2")], **ONE_BATCH)
    assert {error.code() for error in errors} == {KafkaError.INVALID_RECORD}
    assert not produce(running, "keyed", [(b"a", b"1")])
    assert [key for _, key, _ in consume(running, "keyed")] == [b"a"]


@pytest.mark.parametrize("version", range(7, 13))
def test_keyless_records_are_named_one_by_one_as_kafka_does(running: BrokerProcess, version: int) -> None:
    topic = f"named-{version}"
    create(running, topic)
    why = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    pairs: list[Pair] = [(b"a", b"1"), (None, b"1"), (b"b", b"1"), (None, b"2"), (None, b"3"), (None, b"4")]
    with RawClient(running.port) as client:
        for padding in (b"", b"." * 10_000):  # opened at once, and in a thread
            answer = produced(client, topic, keyed([*pairs, (b"c", padding)]), version=version)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert answer.log_start_offset == 0
            listed = [
                (record_error.batch_index, record_error.batch_index_error_message)
                for record_error in answer.record_errors
            ]
            assert listed == ([(at, why) for at in (1, 3, 4, 5)] if version >= 8 else [])
            shown = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at in (1, 3, 4))
            assert answer.error_message == (
                "One or more records have been rejected due to 4 record errors in total, and only showing "
                f"the first three errors at most: [{shown}]"
                if version >= 8
                else None
            )
        assert produced(client, topic, keyed([(b"a", b"1")]), version=version).base_offset == 0


def test_requests_that_are_opened_keep_their_order(running: BrokerProcess) -> None:
    """Large batches are opened in a thread, small ones at once: the later must not overtake the earlier."""
    create(running, "ordered", internal_segment_bytes="1000000")
    sizes = [100_000, 10, 50_000, 10, 10, 100_000] * 5
    with RawClient(running.port) as client:
        frames = [
            client.frame(
                ApiKey.PRODUCE, 9, produce_request("ordered", [(0, keyed([(b"k%d" % at, b"." * size)]))])
            )
            for at, size in enumerate(sizes)
        ]
        client.send_bytes(b"".join(frames))
        for at in range(len(sizes)):
            answer = client.receive().responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, at)


def test_the_policy_of_a_running_topic_can_change(running: BrokerProcess) -> None:
    create(running, "changing", cleanup_policy="delete")
    produce(running, "changing", [(None, b"keyless")] + [(b"a", b"%d" % number) for number in range(2000)])
    fill_segment(running, "changing")
    count = len(consume(running, "changing"))
    assert count == 2010
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "changing", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    wait_for(lambda: len(consume(running, "changing")) < 20)
    assert {error.code() for error in produce(running, "changing", [(None, b"x")])} == {
        KafkaError.INVALID_RECORD
    }
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "changing", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    assert not produce(running, "changing", [(None, b"x")])


def test_compaction_and_retention_together(running: BrokerProcess) -> None:
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    create(running, "both", cleanup_policy="compact,delete", retention_ms="60000")
    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10})
    for number in range(1000):
        producer.produce("both", b"x" * 100, b"old%d" % number, timestamp=hour_ago_ms)
    assert producer.flush(60) == 0
    produce(running, "both", [(b"new", b"%d" % number) for number in range(1000)])
    fill_segment(running, "both")
    # The last of the old ones share a segment with new ones, and so their age.
    wait_for(lambda: len(consume(running, "both")) < 300)
    keys = [key for _, key, _ in consume(running, "both")]
    assert b"old0" not in keys
    assert b"new" in keys


def test_nothing_is_compacted_that_a_required_archive_has_not_taken(running: BrokerProcess) -> None:
    create(running, "archived", penstock_archive_required="true")
    create(running, "free")
    for topic in ("archived", "free"):
        produce(running, topic, [(b"a", b"%d" % number) for number in range(3000)])
        fill_segment(running, topic)
    wait_for(lambda: len(consume(running, "free")) < 100)
    assert len(consume(running, "archived")) == 3009


def test_the_cleaner_tells_what_it_does(running: BrokerProcess) -> None:
    create(running, "told")
    before = metric(running, "penstock_cleaner_read_bytes_total")
    produce(running, "told", [(b"a", b"%d" % number) for number in range(3000)])
    fill_segment(running, "told")
    wait_for(lambda: metric(running, "penstock_cleaner_read_bytes_total") > before)
    wait_for(lambda: metric(running, 'penstock_cleaner_dirty_ratio{partition="0",topic="told"}') == 0)
    assert metric(running, "penstock_cleaner_rounds_total") > 0
    assert metric(running, "penstock_cleaner_last_round_seconds") > 0
    assert metric(running, "penstock_cleaner_freed_bytes_total") > 0
    assert metric(running, "penstock_cleaner_parked_partitions") == 0
