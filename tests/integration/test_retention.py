"""Retention on a live broker (M7): old segments go by time and by size, files and all; the rest stays readable."""

import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import BrokerProcess, broker

POLL_S = 0.05
MESSAGES = 200


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}) as process:
        yield process


def fill(running: BrokerProcess, topic: str, config: dict[str, str], timestamp_ms: int) -> None:
    small = {"internal.segment.bytes": "2000", "file.delete.delay.ms": "0"}
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=small | config)])[topic].result()
    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 1})
    for number in range(MESSAGES):
        producer.produce(topic, b"%d" % number, timestamp=timestamp_ms)
    assert producer.flush(60) == 0


def wait_for(condition: Callable[[], bool]) -> None:
    """The test's own timeout ends what never comes true."""
    while not condition():
        time.sleep(POLL_S)


def offsets(running: BrokerProcess, topic: str) -> tuple[int, int]:
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return low, high
    finally:
        consumer.close()


def segments(running: BrokerProcess, topic: str) -> list[str]:
    return sorted(path.name for path in (running.data_dir / "topics" / topic / "Partition-0").glob("*.log*"))


def test_what_is_older_than_retention_ms_goes_with_its_files(running: BrokerProcess) -> None:
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    fill(running, "by-time", {"retention.ms": "60000"}, hour_ago_ms)
    wait_for(lambda: offsets(running, "by-time") == (MESSAGES, MESSAGES))
    wait_for(lambda: segments(running, "by-time") == [f"{MESSAGES:020d}.log"])


def deleted_but_open(running: BrokerProcess) -> int:
    """Files that have no name any more but still take their space."""
    found = 0
    for entry in Path(f"/proc/{running.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += ".log" in (target := os.readlink(entry)) and target.endswith(" (deleted)")
    return found


def test_the_space_of_what_goes_is_free_again_without_the_garbage_collector(running: BrokerProcess) -> None:
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    fill(running, "freed", {"retention.ms": "60000"}, hour_ago_ms)
    wait_for(lambda: segments(running, "freed") == [f"{MESSAGES:020d}.log"])
    wait_for(lambda: deleted_but_open(running) == 0)


def test_what_exceeds_retention_bytes_goes_and_the_rest_stays(running: BrokerProcess) -> None:
    fill(running, "by-size", {"retention.bytes": "4000"}, int(time.time() * 1000))
    wait_for(lambda: len(segments(running, "by-size")) <= 3)
    low, high = offsets(running, "by-size")
    assert 0 < low < high == MESSAGES
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("by-size", 0, low)])
    got = [message.value() for message in consumer.consume(high - low, timeout=30)]
    consumer.close()
    assert got == [b"%d" % number for number in range(low, high)]


def test_what_is_young_and_small_stays(running: BrokerProcess) -> None:
    fill(running, "kept", {}, int(time.time() * 1000))
    before = segments(running, "kept")
    fill(running, "goes", {"retention.bytes": "2000"}, int(time.time() * 1000))
    wait_for(lambda: offsets(running, "goes")[0] > 0)  # so retention has been at work since
    assert offsets(running, "kept") == (0, MESSAGES)
    assert segments(running, "kept") == before


def unsynced_bytes(running: BrokerProcess, topic: str) -> float:
    with urllib.request.urlopen(running.console_url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(
        rf'^penstock_log_unsynced_bytes{{partition="0",topic="{topic}"}} (\S+)$', text, re.MULTILINE
    )
    assert found, f"no metric for {topic}"
    return float(found[1])


def test_flush_ms_bounds_how_long_bytes_stay_unsynced(running: BrokerProcess) -> None:
    now_ms = int(time.time() * 1000)
    written = {"penstock.ack.after": "written", "internal.segment.bytes": "1000000"}
    fill(running, "never-flushed", written, now_ms)
    fill(running, "flushed", written | {"flush.ms": "1"}, now_ms)
    wait_for(lambda: unsynced_bytes(running, "flushed") == 0)
    assert unsynced_bytes(running, "never-flushed") > 0
