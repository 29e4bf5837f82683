"""A simulated cluster whose partitions are moved and lose their beginnings, while logs fail and the power goes.

Replicas go from one to four and back, by hand and by draining. Disks drop what a failed fsync did not write, so that a
broker begins anew in the midst of a move. What is acknowledged and not deleted is there in the end, and nothing that
was deleted.
"""

import asyncio
from random import Random

from tests.sim.cluster_clients import ClusterClient, Violation, create_topic
from tests.sim.cluster_deleting import DELETERS, Deletions, delete, read_at
from tests.sim.cluster_moving import MovingStory, wanted_replicas
from tests.sim.cluster_story import bytes_below, watched
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS

from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

_REOPENED_SECONDS = 7.0  # by then a log that failed has been opened again


class MovedDeletionsStory(MovingStory):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.is_synced = True  # so any number may lose their power, also where there is one replica
        self.deletions = Deletions()
        for machine in self.machines:
            machine.files.drops_pages = True

    def tell(self) -> None:
        with watched(self.history):
            self.begin()
            for _ in range(self.rng.randint(3, 8)):
                self.rng.choice([self.disturb, self._move_to_any_number, self._move_to_any_number])()
                self.let_pass(self.rng.uniform(0.01, 0.5))
                self.rng.choice([self.misfortune, self.misfortune, self._fail_a_log])()
            self.heal()
            self.stop_draining()
            self.check_progress()
            self.check_data()

    def begin(self) -> None:
        self.loop.executor.step_by_seed()
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        configs = {
            "min.insync.replicas": self.rng.choice(["1", "2"]),
            "internal.segment.bytes": self.rng.choice(["500", "2000"]),
            "penstock.ack.after": "synced",
        }
        self.do(create_topic(self.client("admin"), self.rng.choice([1, 2, 3]), configs))
        self.begin_to_write()
        for index in range(PARTITIONS):
            name = f"reader-{index}"
            self.spawn(name, self._peek(self.client(name), index, self.loop.random(name)))
        for number in range(DELETERS * PARTITIONS):
            name = f"deleter-{number}"
            client, rng = self.client(name), self.loop.random(name)
            self.spawn(name, delete(self.deletions, self.history, client, number % PARTITIONS, rng))
        self.until(lambda: len(self.history.acknowledged) > 10)

    async def _peek(self, client: ClusterClient, index: int, rng: Random) -> None:
        """Somebody who looks for what was deleted; a leader that has not heard yet that it is none may show it."""
        while True:
            await asyncio.sleep(rng.choice([0.02, 0.1]))
            done = self.deletions.done[index]
            if not done:
                continue
            found = await read_at(client, index, rng.randrange(done)) or []
            back = [record.offset for record in found if record.offset < done]
            try:
                epoch = await client.epoch(index)
            except NETWORK_TROUBLE:
                continue
            if back and epoch == self.state(index).leader_epoch:
                raise Violation(f"{back} of {index} are back, deleted up to {done}")
            self.deletions.peeks += 1

    # -- what happens ----------------------------------------------------------------------------------------

    def _move_to_any_number(self) -> None:
        target = self.rng.sample(range(1, 5), self.rng.choice([1, 1, 2, 3, 4]))
        request = wanted_replicas(self.rng.randrange(PARTITIONS), target)
        self.try_at(self.rng.choice(self.machines), ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)

    def _fail_a_log(self) -> None:
        machine = self.rng.choice(self.machines)
        machine.files.fail_next(self.rng.choice(["sync", "write"]), "*.log", count=self.rng.randint(1, 3))
        self.let_pass(self.rng.uniform(0.05, 1.0))
        machine.files.mend()
        self.let_pass(self.rng.choice([0, self.rng.uniform(3, _REOPENED_SECONDS)]))

    def _kill_leader_while_one_joins(self, index: int) -> None:
        if len(self.state(index).replicas) > 1:
            super()._kill_leader_while_one_joins(index)

    # -- the end ---------------------------------------------------------------------------------------------

    def check_progress(self) -> None:
        self.until(self._is_whole, seconds=120)
        done, acknowledged = dict(self.deletions.done), len(self.history.acknowledged)

        def goes_on() -> bool:
            deleted = all(self.deletions.done[index] > done[index] for index in done)
            return deleted and len(self.history.acknowledged) > acknowledged + 3

        self.until(goes_on)

    def _is_whole(self) -> bool:
        """However many replicas there are by now."""
        if not all(machine.ready and self._is_settled(machine) for machine in self.machines):
            return False
        return all(
            not (state.adding or state.removing or state.suspects) and len(state.isr) == len(state.replicas)
            for state in self.states()
        )

    def check_data(self) -> None:
        for kind, count in (
            ("producer", PRODUCERS),
            ("reader", PARTITIONS),
            ("deleter", DELETERS * PARTITIONS),
        ):
            for number in range(count):
                self.loop.crash(f"{kind}-{number}")
        self.let_pass(3)
        for index in range(PARTITIONS):
            replicas = [self.replica(broker, index) for broker in self.state(index).replicas]
            limit = min(replica.high_watermark for replica in replicas)
            start = max(replica.log.start_offset for replica in replicas)
            for replica in replicas:
                self._check_replica(index, replica, limit)
            if len({bytes_below(replica, limit, start) for replica in replicas}) > 1:
                raise Violation(f"the replicas of {index} differ from {start} to {limit}")

    def _check_replica(self, index: int, replica: Partition, limit: int) -> None:
        start, done, asked = replica.log.start_offset, self.deletions.done[index], self.deletions.asked[index]
        if not done <= start <= asked:
            raise Violation(f"{index} begins at {start}: {done} was deleted, {asked} asked for")
        stored = {record.offset: record.value for record in read_all(bytes_below(replica, limit))}
        for (where, offset), value in self.history.acknowledged.items():
            if where == index and offset >= start and stored.get(offset) != value:
                raise Violation(f"offset {offset} of {index} was {value!r}, now {stored.get(offset)!r}")
        if len({*stored.values()}) != len(stored):
            raise Violation(f"{index} has a value twice")
