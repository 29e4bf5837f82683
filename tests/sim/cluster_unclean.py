"""A simulated cluster whose topic may be led by whoever lives: records are lost, and everything else still holds.

Leaders die with what only they have. Offsets are given out a second time, under another leader epoch: nobody ever sees
two values under one epoch and offset, readers go on, and in the end all replicas are the same.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from tests.sim.cluster_clients import (
    PASSING,
    ClusterClient,
    History,
    Violation,
    create_topic,
    send_until_acknowledged,
)
from tests.sim.cluster_story import BROKERS, Story, bytes_below, replica_of
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS, batch_of, fetch_request, numbered

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import check_batch, size_at
from penstock.records.reader import Record, read_all
from penstock.replication.following import Follower
from penstock.replication.leader_questions import Questions
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import PartitionData


class UncleanHistory(History):
    def __init__(self) -> None:
        super().__init__()
        self.told: dict[tuple[int, int, int], bytes] = {}  # (partition, epoch, offset) -> value
        self.lost = 0  # how often a leader went with what only it had

    def showed(self, partition: int, epoch: int, record: Record) -> None:
        value = record.value or b""
        before = self.told.setdefault((partition, epoch, record.offset), value)
        if before != value:
            raise Violation(
                f"offset {record.offset} of {partition} in epoch {epoch} showed {before!r}, now {value!r}"
            )


def with_epochs(data: bytes) -> Iterator[tuple[int, Record]]:
    """Records, each with the leader epoch of its batch; a piece at the end is left out."""
    view, position = memoryview(data), 0
    while (size := size_at(view, position, len(view))) is not None and position + size <= len(view):
        epoch = check_batch(view, position).leader_epoch
        for record in read_all(view[position : position + size]):
            yield epoch, record
        position += size


async def write(history: UncleanHistory, client: ClusterClient, number: int, rng: Random) -> None:
    """A producer that numbers nothing: one that did would be refused where what it sent is lost."""
    partition, sequence = number % PARTITIONS, 0
    while True:
        values = numbered(number, sequence, rng.randint(1, 4))
        base = await send_until_acknowledged(client, partition, batch_of(values))
        history.acknowledged[partition, base] = values[0]
        history.sent += len(values)
        sequence += len(values)
        await asyncio.sleep(rng.choice([0.0, 0.02, 0.1, 0.3]))


async def follow(history: UncleanHistory, client: ClusterClient, partition: int) -> None:
    """A consumer that begins again where its place is gone."""
    offset = 0
    while True:
        try:
            epoch = await client.epoch(partition)
            request = fetch_request(partition, offset, epoch=epoch)
            answered = await client.ask_leader(partition, ApiKey.FETCH, request)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        answer = answered.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = 0
        elif answer.error_code in PASSING:
            client.forget(partition)
            await asyncio.sleep(0.05)
        elif answer.error_code != ErrorCode.NONE:
            raise Violation(f"a reader at {offset} was told {ErrorCode(answer.error_code).name}")
        for batch_epoch, record in with_epochs(bytes(answer.records or b"")):
            if record.offset < offset:
                continue
            if record.offset != offset:
                raise Violation(f"a reader of {partition} at {offset} was given {record.offset}")
            history.showed(partition, batch_epoch, record)
            offset += 1


@contextmanager
def followers_watched(history: History) -> Iterator[None]:
    """What a leader wrote is committed when it says so: a follower that knows of more shows what may be given up."""
    honest = Follower.take

    async def take(
        follower: Follower, partition: Partition, epoch: int, answer: PartitionData, leader: Questions
    ) -> bool:
        committed, told = partition.high_watermark, answer.high_watermark
        if (
            answer.error_code == ErrorCode.NONE
            and answer.diverging_epoch.end_offset < 0
            and partition.leader_epoch == epoch == partition.log.epochs.epoch_at(committed - 1)
            and committed > told
        ):
            where = f"{partition.topic}-{partition.index}"
            history.wrong.append(f"{where}: {committed} is committed, its leader says {told}")
        return await honest(follower, partition, epoch, answer, leader)

    with patch.object(Follower, "take", take):
        yield


class UncleanStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        # Marks are written down often, and not so often that none is ever old.
        super().__init__(loop, {"replica.high.watermark.checkpoint.interval.ms": "1000"})
        self.history: UncleanHistory = UncleanHistory()

    def tell(self) -> None:
        with followers_watched(self.history):
            super().tell()

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        configs = {
            "internal.segment.bytes": self.rng.choice(["500", "2000"]),
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "true",
            "penstock.ack.after": "synced" if self.is_synced else "auto",
        }
        admin = create_topic(self.client("admin"), BROKERS, configs)
        self.loop.run_until_complete(self.loop.spawn("admin", admin))
        for number in range(PRODUCERS):
            name = f"producer-{number}"
            self.spawn(name, write(self.history, self.client(name), number, self.loop.random(name)))
        for partition in range(PARTITIONS):
            name = f"reader-{partition}"
            self.spawn(name, follow(self.history, self.client(name), partition))

    def misfortune(self) -> None:
        if self.rng.random() < 0.6 and self._is_whole():
            self._lose_what_only_the_leader_has(self.rng.randrange(PARTITIONS))
        else:
            super().misfortune()

    def may_lose_power(self, machine: object) -> bool:
        return True  # what is lost is lost

    def _lose_what_only_the_leader_has(self, index: int) -> None:
        leader = self.machines[self._state(index).leader - 1]
        others = [machine for machine in self.machines if machine is not leader]
        for other in others:
            other.kill()
        if self._wait_until(lambda: len(self._state(index).isr) == 1):
            self.let_pass(self.rng.uniform(0.2, 1))
        power = self.rng.random() < 0.5
        (leader.power_cut if power else leader.kill)()
        for other in others:
            other.start()
        number = self.machines.index(leader) + 1
        for _ in range(20):
            self.let_pass(0.5)
            if self._state(index).leader not in (-1, number):
                break
        else:
            raise Violation(f"nobody leads {index}, although two live that may: {self._state(index)}")
        self.history.lost += 1
        if self.rng.random() < 0.5:
            self._kill_with_an_uncommitted_end(leader, index)
        else:
            self.let_pass(self.rng.uniform(0, 1))
            leader.start()

    def _kill_with_an_uncommitted_end(self, machine: SimBroker, index: int) -> None:
        """It has marked what is lost as committed, and comes back to what takes its place, before all have that."""
        leader = self._state(index).leader
        slow = next(
            broker
            for number, broker in enumerate(self.machines, 1)
            if broker is not machine and number != leader
        )
        self.loop.network.stall(self.machines[leader - 1].name, slow.name)
        machine.start()
        self.let_pass(self.rng.uniform(0.3, 0.8))
        machine.kill()
        machine.start()
        self.let_pass(0.5)
        self.loop.network.heal_all()

    def check_data(self) -> None:
        """All replicas are the same, and what they have is what was shown under their epochs."""
        for name in [f"producer-{n}" for n in range(PRODUCERS)] + [f"reader-{p}" for p in range(PARTITIONS)]:
            self.loop.crash(name)
        self.let_pass(1)
        self._check_replicas()
        for index in range(PARTITIONS):
            replica = replica_of(self.machines[0], index)
            for epoch, record in with_epochs(bytes_below(replica, replica.high_watermark)):
                self.history.showed(index, epoch, record)
