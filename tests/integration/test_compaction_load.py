"""Many keys at once: compaction in bounded memory, beside producers that must not notice (issue 5, "Show").

`make test` runs a small form and looks at correctness and memory; `make soak PART=compaction` runs 10 million keys and
looks at the latency of a producer beside it, too. Both print what they measured.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.raw import RawClient, anonymous_bytes, create_topic, make_batch, produced

from penstock.testing import BrokerProcess, broker

LONG_FORM = "PENSTOCK_COMPACTION_KEYS" in os.environ
KEYS = int(os.environ.get("PENSTOCK_COMPACTION_KEYS", "50000"))
UPDATED_EVERY = 4
MEMORY_MAX = 300 * 1024 * 1024
LATENCY_RATIO_MAX = 2.0
BASELINE_SECONDS = 20.0
POLL_S = 0.05
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    # Fewer slots than keys in either form: several rounds are needed.
    "log.cleaner.dedupe.buffer.size": str(min(24 * KEYS * 3 // 4, 128 * 1024 * 1024)),
}


class Memory:
    """The largest sum of what the broker and the processes it started hold for themselves."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped = threading.Event()
        self.first = self.most = self._now()
        self._thread = threading.Thread(target=self._watch)

    def _now(self) -> int:
        total = anonymous_bytes(self._pid)
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                try:
                    total += anonymous_bytes(int(child))
                except (FileNotFoundError, ProcessLookupError, AssertionError):
                    continue  # gone meanwhile, or about to be
        return total

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_S):
            self.most = max(self.most, self._now())

    @contextmanager
    def watched(self) -> Iterator["Memory"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._thread.join()


class Pinger:
    """Single records, one after the other, at a steady pace: what a producer with latency to lose would send."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port)
        self._stopped = threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._ping)

    def _ping(self) -> None:
        while not self._stopped.wait(0.005):
            began = time.perf_counter()
            assert produced(self._client, "pings", make_batch([b"ping"])).error_code == 0
            self.seconds.append(time.perf_counter() - began)

    @contextmanager
    def pinging(self) -> Iterator["Pinger"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._thread.join()
            self._client.close()

    def percentile_ms(self, share: float) -> float:
        return 1000 * sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def fill(running: BrokerProcess) -> int:
    """Every key once, and some of them again; returns how many records that makes."""
    producer = Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = 0
    for version, step in ((b"1", 1), (b"2", UPDATED_EVERY)):
        value = version * 50
        for number in range(0, KEYS, step):
            while True:
                try:
                    producer.produce("keys", value, b"key-%010d" % number)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
            if not count % 10_000:
                producer.poll(0)
    assert producer.flush(300) == 0
    # One more, to seal what is before it, so that all of it may be compacted.
    producer.produce("keys", b"." * 900_000, b"last")
    producer.produce("keys", b"." * 900_000, b"last")
    assert producer.flush(60) == 0
    return count


def versions(running: BrokerProcess) -> tuple[bytearray, int]:
    """The last version seen of each key, and how many records there are."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    seen, records = bytearray(KEYS), 0
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition("keys", 0), timeout=30)
        consumer.assign([TopicPartition("keys", 0, 0)])
        offset = -1
        while offset < end - 1:
            for message in consumer.consume(10_000, timeout=0.2):
                offset = message.offset()
                if message.key() != b"last":
                    seen[int(message.key()[4:])] = message.value()[0]
                    records += 1
    finally:
        consumer.close()
    return seen, records


def compact(running: BrokerProcess) -> None:
    """Let compaction begin, and wait until it is done."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "keys", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    directory = running.data_dir / "topics/keys/Partition-0"
    checkpoint = directory / "cleaner-offset-checkpoint"
    active = max(int(path.stem) for path in directory.glob("*.log"))

    def cleaned_to() -> int:
        return int(checkpoint.read_text().split()[1]) if checkpoint.exists() else 0

    while cleaned_to() < active:
        time.sleep(POLL_S)


def compacted_under_watch(*, judge_latency: bool) -> None:
    with broker(SETTINGS) as running:
        segment_bytes = max(1024 * 1024, min(KEYS * 20, 256 * 1024 * 1024))
        config = {
            "cleanup.policy": "delete",
            "segment.bytes": str(segment_bytes),
            "file.delete.delay.ms": "0",
        }
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("keys", 1, config=config)])["keys"].result()
        with RawClient(running.port) as client:
            create_topic(client, "pings")
        stored = fill(running)
        with Pinger(running.port).pinging() as quiet:
            time.sleep(BASELINE_SECONDS if judge_latency else 1)
        began = time.monotonic()
        with Memory(running.pid).watched() as memory, Pinger(running.port).pinging() as busy:
            compact(running)
        took = time.monotonic() - began
        grown = memory.most - memory.first
        print(f"\n{KEYS} keys, {stored} records compacted in {took:.1f} s; {grown >> 20} MB more RssAnon")
        for share in (0.5, 0.99):
            before, beside = quiet.percentile_ms(share), busy.percentile_ms(share)
            print(
                f"produce p{share * 100:g}: {before:.2f} ms alone, {beside:.2f} ms beside it: {beside / before:.2f} x"
            )
        seen, records = versions(running)
        assert all(
            version == (b"2" if number % UPDATED_EVERY == 0 else b"1")[0]
            for number, version in enumerate(seen)
        )
        assert records < stored
        assert grown < MEMORY_MAX
        if judge_latency:
            assert busy.percentile_ms(0.99) <= LATENCY_RATIO_MAX * quiet.percentile_ms(0.99)


def test_more_keys_than_the_map_holds_in_bounded_memory() -> None:
    compacted_under_watch(judge_latency=LONG_FORM)
