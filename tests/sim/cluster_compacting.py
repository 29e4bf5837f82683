"""A simulated cluster with a compacted topic, whose tombstones live for less than brokers are away."""

import asyncio
from random import Random

from tests.sim.cluster_clients import ClusterClient, History, Violation, create_topic, send_until_acknowledged
from tests.sim.cluster_story import BROKERS, Story, replica_of
from tests.sim.messages import PARTITIONS, PRODUCERS

from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.replication.partition import Partition
from penstock.testing.sim_loop import SimLoop

KEYS = 8
# Memory for more keys than there are: what is usual in the field takes half a second to allocate, each round.
CLEANING = {"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": str(24 * 1000)}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
    "file.delete.delay.ms": "100",
    "min.insync.replicas": "2",
}


async def write_keys(history: "KeyedHistory", client: ClusterClient, number: int, rng: Random) -> None:
    """Values and tombstones of a few keys of its own; each key's last word is kept, sent or acknowledged."""
    partition, sequence = number % PARTITIONS, 0
    while True:
        key = b"%d-%d" % (number, rng.randrange(KEYS))
        value = None if rng.random() < 0.4 else b"%d" % sequence
        history.last.pop((partition, key), None)
        options = BatchOptions(producer_id=1000 + number, producer_epoch=0, base_sequence=sequence)
        batch = build_batch([Record(offset=0, timestamp=1, key=key, value=value)], options)
        offset = await send_until_acknowledged(client, partition, bytes(batch))
        history.acknowledged[partition, offset] = value or b""
        history.last[partition, key] = offset, value
        sequence += 1
        await asyncio.sleep(rng.choice([0.0, 0.02, 0.1]))


class KeyedHistory(History):
    def __init__(self) -> None:
        super().__init__()
        self.last: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}  # (partition, key): what is certain


class CompactingStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, CLEANING)
        self.history: KeyedHistory = KeyedHistory()

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        acks = "synced" if self.is_synced else "auto"
        size = self.rng.choice(["300", "600"])
        configs = {**COMPACTED, "penstock.ack.after": acks, "internal.segment.bytes": size}
        admin = create_topic(self.client("admin"), BROKERS, configs)
        self.loop.run_until_complete(self.loop.spawn("admin", admin))
        for number in range(PRODUCERS):
            name = f"producer-{number}"
            self.spawn(name, write_keys(self.history, self.client(name), number, self.loop.random(name)))

    def check_data(self) -> None:
        """Whoever leads next: each key has its last value, or is gone."""
        for number in range(PRODUCERS):
            self.loop.crash(f"producer-{number}")
        self.let_pass(2)
        for machine in self.machines:
            for index in range(PARTITIONS):
                kept = records_of_keys(replica_of(machine, index))
                for (where, key), (offset, value) in self.history.last.items():
                    if where == index:
                        _check(f"{machine.name}: {key!r} of {index}", kept.get(key, []), offset, value)


def _check(what: str, kept: list[tuple[int, bytes | None]], offset: int, value: bytes | None) -> None:
    if value is not None and (offset, value) not in kept:
        raise Violation(f"{what} lost its value at {offset}")
    if value is None and kept and (offset, value) not in kept:
        raise Violation(f"{what} was deleted at {offset}, and is back: {kept}")


def records_of_keys(partition: Partition) -> dict[bytes, list[tuple[int, bytes | None]]]:
    """What a replica holds of each key."""
    found: dict[bytes, list[tuple[int, bytes | None]]] = {}
    for segment in partition.log.segments:
        for record in read_all(memoryview(segment.file.pread(segment.size, 0))):
            if record.key is not None:
                found.setdefault(record.key, []).append((record.offset, record.value))
    return found
