"""A compacted topic on a broker under everything that can happen to it, seed by seed.

Producers write to their own few keys, values and tombstones, idempotently, and send a batch again until it is
acknowledged. Readers follow. Segments are tiny and the cleaner is restless, so that kills, power cuts and bad disks
meet it at every step. In the end each key has the latest value that was acknowledged (or a later one), a deleted key
is gone or still marked, and no offset ever showed two values.
"""

import asyncio
import os
from random import Random

import pytest
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS, TOPIC
from tests.sim.test_broker import NOT_SERVED_NOW, _send_until_acknowledged, create_topic, misfortune, spawn

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, iter_batches, read_all
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import fetch

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "80")) // 4, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
KEYS = 4
BROKER = {"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": str(24 * 6)}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
    "file.delete.delay.ms": "100",
}

Stored = tuple[bytes | None, bytes | None]  # key, value


class History:
    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], Stored] = {}
        self.seen: dict[tuple[int, int], Stored] = {}

    def saw(self, partition: int, record: Record) -> None:
        told = record.key, record.value
        before = self.seen.setdefault((partition, record.offset), told)
        assert before == told, f"offset {record.offset} of {partition} showed {before!r}, now {told!r}"


async def write(history: History, number: int, rng: Random) -> None:
    client = SimClient("broker", PORT, timeout_s=2.0)
    partition = number % PARTITIONS
    sequence = 0
    while True:
        records = [
            Record(
                offset=at,
                timestamp=1,
                key=b"%d-%d" % (number, rng.randrange(KEYS)),
                value=None if rng.random() < 0.2 else b"%d" % (sequence + at),
            )
            for at in range(rng.randint(1, 4))
        ]
        options = BatchOptions(producer_id=1000 + number, producer_epoch=0, base_sequence=sequence)
        base = await _send_until_acknowledged(client, partition, bytes(build_batch(records, options)))
        for at, record in enumerate(records):
            history.acknowledged[partition, base + at] = record.key, record.value
        sequence += len(records)
        await asyncio.sleep(rng.uniform(0, 0.05))


async def fetch_once(client: SimClient, partition: int, offset: int) -> tuple[list[Record], int, int]:
    """Records from `offset` on, where to go on, and the high watermark."""
    wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=2000)
    topics = [fetch.FetchTopic(topic=TOPIC, partitions=[wanted])]
    request = fetch.FetchRequest(max_wait_ms=50, min_bytes=1, max_bytes=10_000, topics=topics)
    answer = (await client.call(ApiKey.FETCH, request)).responses[0].partitions[0]
    if answer.error_code in NOT_SERVED_NOW:
        return [], offset, -1
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    data = memoryview(bytes(answer.records or b""))
    for _, header in iter_batches(data):
        offset = max(offset, header.next_offset)
    records = list(read_all(data, from_offset=wanted.fetch_offset))
    return records, offset, answer.high_watermark


async def follow(history: History, partition: int) -> None:
    client = SimClient("broker", PORT, timeout_s=2.0)
    offset = 0
    while True:
        try:
            records, offset, _ = await fetch_once(client, partition, offset)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        for record in records:
            history.saw(partition, record)


async def read_partition(history: History, partition: int) -> dict[int, Stored]:
    client = SimClient("broker", PORT)
    stored: dict[int, Stored] = {}
    offset, high_watermark = 0, -1
    while offset < high_watermark or high_watermark < 0:
        records, offset, high_watermark = await fetch_once(client, partition, offset)
        for record in records:
            history.saw(partition, record)
            stored[record.offset] = record.key, record.value
    return stored


def run_story(seed: int) -> tuple[str, int]:
    """The hash of the trace, and how many rounds of compaction the last process made."""
    with SimLoop(seed) as loop:
        rng = loop.random("story")
        machine = SimBroker(loop, settings=BROKER)
        history = History()
        machine.start()
        segment_bytes = rng.choice(["300", "600", "2000"])
        topic = create_topic(
            SimClient("broker", PORT), {**COMPACTED, "internal.segment.bytes": segment_bytes}
        )
        loop.run_until_complete(loop.spawn("admin", topic))
        for number in range(PRODUCERS):
            spawn(loop, f"producer-{number}", write(history, number, loop.random(f"producer-{number}")))
        for partition in range(PARTITIONS):
            spawn(loop, f"reader-{partition}", follow(history, partition))
        for _ in range(8):
            loop.run_for(rng.uniform(0.05, 0.6))
            misfortune(loop, machine, rng)
        loop.run_for(7)
        for name in [f"producer-{n}" for n in range(PRODUCERS)] + [f"reader-{p}" for p in range(PARTITIONS)]:
            loop.crash(name)
        for partition in range(PARTITIONS):
            read = read_partition(history, partition)
            check(history, partition, loop.run_until_complete(loop.spawn("checker", read)))
        assert machine.broker is not None
        assert not machine.broker.cleaner.parked
        return loop.trace_hash, machine.broker.cleaner.stats.rounds


def check(history: History, partition: int, stored: dict[int, Stored]) -> None:
    latest: dict[bytes | None, int] = {}
    for (where, offset), (key, _) in history.acknowledged.items():
        if where == partition:
            latest[key] = max(offset, latest.get(key, -1))
    assert latest, "nothing was acknowledged: the story tells nothing"
    for key, offset in latest.items():
        told = history.acknowledged[partition, offset]
        later = [at for at, (other, _) in stored.items() if other == key and at > offset]
        if told[1] is not None:
            assert later or stored.get(offset) == told, f"{key!r} lost its value at {offset}"
        elif not later and offset not in stored:
            assert key not in {other for other, _ in stored.values()}, f"{key!r} came back"
    for (where, offset), told in history.acknowledged.items():
        if where == partition and offset in stored:
            assert stored[offset] == told


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_each_key_keeps_its_latest_value(seed: int) -> None:
    _, rounds = run_story(seed)
    assert rounds, "nothing was compacted: the story tells nothing"


def test_one_seed_is_one_story() -> None:
    assert run_story(7) == run_story(7)
