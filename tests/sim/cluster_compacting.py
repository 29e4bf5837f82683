"""A simulated cluster with a compacted topic, whose tombstones live for less than brokers are away.

No key is used again once it was deleted: what comes back stays, for the checker to find. Logs are replaced meanwhile:
by copies, where a replica was away for longer than tombstones live; by ones that begin later, where what lay before
was deleted; by new ones, where a replica moves away and back. Some brokers compact late, so that a copy has to be
compacted where its predecessor was clean already.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

from tests.sim.cluster_clients import ClusterClient, History, Violation, create_topic, send_until_acknowledged
from tests.sim.cluster_deleting import delete_request
from tests.sim.cluster_moving import wanted_replicas
from tests.sim.cluster_story import BROKERS, Story, replica_of
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS

from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

KEYS = 3
# Memory for more keys than there are: what is usual in the field takes half a second to allocate, each round.
CLEANING = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": str(24 * 1000)}
LATE = "1500"  # ms that some brokers rest between two rounds
COMPACTED = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "100",
    "min.insync.replicas": "2",
}
FAULTS = ("away", "away", "away", "move", "move", "overtaken", "other")
ALL = list(range(1, BROKERS + 1))


async def write_keys(history: "KeyedHistory", client: ClusterClient, number: int, rng: Random) -> None:
    """Values of a few keys at a time, each deleted in the end; its last word is kept, once it is acknowledged."""
    partition, sequence = number % PARTITIONS, 0
    keys = list(range(KEYS))
    while True:
        chosen = rng.randrange(KEYS)
        key = b"%d-%d" % (number, keys[chosen])
        value = None if rng.random() < 0.4 else b"%d" % sequence
        if value is None:
            keys[chosen] = max(keys) + 1
        history.last.pop((partition, key), None)
        options = BatchOptions(producer_id=1000 + number, producer_epoch=0, base_sequence=sequence)
        batch = build_batch([Record(offset=0, timestamp=1, key=key, value=value)], options)
        offset = await send_until_acknowledged(client, partition, bytes(batch))
        history.acknowledged[partition, offset] = value or b""
        history.last[partition, key] = offset, value
        sequence += 1
        await asyncio.sleep(rng.choice([0.02, 0.05, 0.1]))


class KeyedHistory(History):
    def __init__(self) -> None:
        super().__init__()
        self.last: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}  # (partition, key): what is certain
        self.deleted = dict.fromkeys(range(PARTITIONS), 0)  # up to where somebody wanted all of it gone


class CompactingStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, CLEANING)
        self.history: KeyedHistory = KeyedHistory()
        for machine in self.machines:
            if self.rng.random() < 0.5:
                machine._settings["log.cleaner.backoff.ms"] = LATE

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

    def misfortune(self) -> None:
        machine = self.rng.choice(self.machines)
        match self.rng.choice(FAULTS):
            case "away" if self._is_whole():
                self._away(machine, self.rng.uniform(1, 3))
            case "move" if self._is_whole():
                self._move_away_and_back(self.rng.randrange(PARTITIONS), machine)
            case "overtaken" if self._is_whole():
                self._overtake(self.rng.randrange(PARTITIONS), machine)
            case "other":
                super().misfortune()

    # -- how logs are replaced -------------------------------------------------------------------------------

    def _away(self, machine: SimBroker, seconds: float) -> None:
        """For longer than tombstones live."""
        machine.kill()
        self.let_pass(SESSION_SECONDS + seconds)
        machine.start()
        self._wait_until(self._is_whole)

    def _move_away_and_back(self, index: int, machine: SimBroker) -> None:
        gone = self.machines.index(machine) + 1
        rest = [broker for broker in ALL if broker != gone]
        self._move(index, rest)
        if self._wait_until(lambda: gone not in self._state(index).replicas):
            self.let_pass(self.rng.uniform(0.1, 0.5))
        self._move(index, ALL)
        self._wait_until(self._is_whole)

    def _overtake(self, index: int, machine: SimBroker) -> None:
        """While one is away all that it has is deleted, so that its log begins anew behind its end."""
        machine.kill()
        self.let_pass(SESSION_SECONDS + self.rng.uniform(0.5, 1.5))
        known = [offset for where, offset in self.history.acknowledged if where == index]
        leader = self._state(index).leader
        if known and leader > 0 and self.machines[leader - 1].ready:
            self.history.deleted[index] = offset = max(known)
            self._ask(self.machines[leader - 1], ApiKey.DELETE_RECORDS, delete_request(index, offset))
        machine.start()
        self._wait_until(self._is_whole)

    def _move(self, index: int, replicas: list[int]) -> None:
        live = [machine for machine in self.machines if machine.ready]
        if live:
            self._ask(live[0], ApiKey.ALTER_PARTITION_REASSIGNMENTS, wanted_replicas(index, replicas))

    def _ask(self, machine: SimBroker, api: ApiKey, request: Any) -> None:
        async def ask() -> None:
            with suppress(*NETWORK_TROUBLE):
                await SimClient(machine.name, PORT, timeout_s=3.0).call(api, request)

        self.loop.run_until_complete(self.loop.spawn("admin", ask()))

    # -- the end ---------------------------------------------------------------------------------------------

    def check_progress(self) -> None:
        for _ in range(10):
            missing = [index for index in range(PARTITIONS) if len(self._state(index).replicas) < BROKERS]
            for index in missing:
                self._move(index, ALL)
            if not missing:
                break
            self.let_pass(1)
        super().check_progress()

    def check_data(self) -> None:
        """Whoever leads next: each key has its last value, or is gone."""
        for number in range(PRODUCERS):
            self.loop.crash(f"producer-{number}")
        self.let_pass(2)
        for machine in self.machines:
            for index in range(PARTITIONS):
                kept = records_of_keys(replica_of(machine, index))
                for (where, key), (offset, value) in self.history.last.items():
                    gone = value is not None and offset < self.history.deleted[index]
                    if where == index and not gone:
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
            if record.key is not None and record.offset >= partition.log.start_offset:
                found.setdefault(record.key, []).append((record.offset, record.value))
    return found
