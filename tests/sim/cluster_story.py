"""Three brokers, one store, and everything that can happen to them; the seed tells the story.

What may be lost, and so is not done to them: with `penstock.ack.after=auto` records are acknowledged from the page
caches of two brokers, so a power cut spares at least one that is up and has everything. With `synced` any number may go
dark.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.sim.cluster_clients import (
    ClusterClient,
    History,
    Violation,
    create_topic,
    follow,
    read_partition,
    write,
)
from tests.sim.messages import PARTITIONS, PRODUCERS, TOPIC

from penstock.coordination import nodes
from penstock.coordination.memory import MemoryStore
from penstock.coordination.nodes import PartitionState
from penstock.replication.fetcher import Fetcher
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop

BROKERS = 3
SETTINGS = {
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "200",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "100",
    # What is written is of 1970, and long stories see the first round of retention: a topic that wants it says so.
    "log.retention.ms": "-1",
}
FAULTS = (
    "kill", "kill", "power", "power", "stop", "all", "store", "store", "pause", "pause", "apart", "apart", "one-way",
    "slow", "cut", "fail", "full", "jump", "late", "joining", "joining", "nothing",
)  # fmt: skip


class Story:
    faults: Sequence[str] = FAULTS

    def __init__(
        self,
        loop: SimLoop,
        settings: Mapping[str, str] | None = None,
        *,
        synced: bool | None = None,
        brokers: int = BROKERS,
    ) -> None:
        self.loop = loop
        self.rng = loop.random("story")
        self.history = History()
        self.store = MemoryStore()
        self.machines = [
            SimBroker(
                loop, f"broker-{number}", {**SETTINGS, **(settings or {}), "node.id": str(number)}, self.store
            )
            for number in range(1, brokers + 1)
        ]
        for machine in self.machines:
            machine.files.drops_pages = loop.random(f"{machine.name}/drops").random() < 0.5
        self.is_synced = synced if synced is not None else self.rng.random() < 0.3
        self._down: dict[SimBroker, float] = {}  # those that are off, and when they start again

    @property
    def names(self) -> list[str]:
        return [machine.name for machine in self.machines]

    def client(self, name: str) -> ClusterClient:
        return ClusterClient(self.names, self.loop.random(f"{name}/client"))

    def spawn(self, name: str, work: object) -> None:
        # A violation anywhere ends the run.
        self.loop.spawn(name, work).add_done_callback(asyncio.Task.result)  # type: ignore[arg-type]

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        configs = {
            "internal.segment.bytes": self.rng.choice(["500", "2000", "1000000"]),
            "min.insync.replicas": "2",
            "penstock.ack.after": "synced" if self.is_synced else "auto",
        }
        self.create(configs)
        self.begin_to_write()
        self.begin_to_read()

    def create(self, configs: dict[str, str]) -> None:
        admin = create_topic(self.client("admin"), BROKERS, configs)
        self.loop.run_until_complete(self.loop.spawn("admin", admin))

    def begin_to_write(self) -> None:
        for number in range(PRODUCERS):
            name = f"producer-{number}"
            self.spawn(name, write(self.history, self.client(name), number, self.loop.random(name)))

    def begin_to_read(self) -> None:
        for partition in range(PARTITIONS):
            name = f"reader-{partition}"
            self.spawn(name, follow(self.history, self.client(name), partition))

    def tell(self) -> None:
        """From the beginning to the end: a few things happen, all of it heals, and everything is looked at."""
        with watched(self.history):
            self.begin()
            for _ in range(self.rng.randint(3, 7)):
                self.let_pass(self.rng.uniform(0.05, 1.0))
                self.misfortune()
            self.heal()
            self.check_progress()
            self.check_data()

    # -- faults ----------------------------------------------------------------------------------------------

    def let_pass(self, seconds: float) -> None:
        """Time goes by, and what was off comes back when its time has come."""
        end = self.loop.time() + seconds
        while True:
            self._restart_due()
            due = min([end, *self._down.values()])
            if due > self.loop.time():
                self.loop.run_for(due - self.loop.time())
            if self.loop.time() >= end:
                return

    def _restart_due(self) -> None:
        for machine, when in list(self._down.items()):
            if when <= self.loop.time():
                del self._down[machine]
                machine.start()

    def turn_off(self, machine: SimBroker, *, power: bool) -> None:
        if power:
            machine.power_cut()
        else:
            machine.kill()
        self._down[machine] = self.loop.time() + self.rng.choice([0.0, 0.0, 0.3, 1.5, 3.0])

    def misfortune(self) -> None:
        rng, loop = self.rng, self.loop
        machine = rng.choice(self.machines)
        other = rng.choice([broker for broker in self.machines if broker is not machine])
        match rng.choice(self.faults):
            case "kill" if machine.running:
                self.turn_off(machine, power=False)
            case "power" if machine.running and self.may_lose_power(machine):
                self.turn_off(machine, power=True)
            case "stop" if machine.ready:
                machine.stop()
                self._down[machine] = loop.time() + rng.choice([0.0, 0.5, 2.0])
            case "all":
                for broker in self.machines:
                    if broker.running:
                        self.turn_off(broker, power=self.is_synced and rng.random() < 0.5)
            case "store":
                machine.cut_off()
                self.let_pass(rng.choice([0.3, SESSION_SECONDS * 1.5, SESSION_SECONDS * 3]))
                machine.reach_store()
            case "pause" if machine.running:
                machine.pause()
                self.let_pass(rng.choice([0.3, SESSION_SECONDS * 1.5, SESSION_SECONDS * 3]))
                machine.resume()
            case "apart" | "one-way" as how:
                for broker_info in rng.choice(
                    [[other], [broker for broker in self.machines if broker is not machine]]
                ):
                    loop.network.stall(machine.name, broker_info.name, one_way=how == "one-way")
                self.let_pass(rng.uniform(0.2, 4))
                loop.network.heal_all()
            case "slow":
                loop.slow_down(machine.name, rng.uniform(2, 50))
                self.let_pass(rng.uniform(0.1, 1))
                loop.slow_down(machine.name, 1)
            case "cut":
                loop.network.cut(machine.name, rng.choice([other.name, "producer-0", "reader-0"]))
            case "fail" if self.may_lose_power(machine):
                machine.files.fail_next(rng.choice(["sync", "write"]), "*.log", count=rng.randint(1, 2))
                self.let_pass(rng.uniform(0.05, 0.5))
                machine.files.mend()
            case "full":
                machine.files.fill_up(rng.randint(0, 3000))
                self.let_pass(rng.uniform(0.05, 0.5))
                machine.files.make_room()
            case "late":
                machine.store_lag_s = rng.uniform(0.05, 0.4)
                self.let_pass(rng.uniform(0.2, 2))
                machine.store_lag_s = 0.0
            case "joining":
                self._kill_leader_while_one_joins(rng.randrange(PARTITIONS))
            case "jump":
                machine.clock.jump(rng.choice([-1, 1]) * rng.choice([50, 5_000, 3_600_000]))

    def _kill_leader_while_one_joins(self, index: int) -> None:
        """The leader hears late that a replica has joined, cannot reach it any more, and dies."""
        state = self._state(index)
        outside = [replica for replica in state.replicas if replica not in state.isr]
        if state.leader < 0 or not self.machines[state.leader - 1].ready:
            return
        leader = self.machines[state.leader - 1]
        joining = (
            outside[0]
            if outside
            else next(replica for replica in reversed(state.replicas) if replica != state.leader)
        )
        machine = self.machines[joining - 1]
        if not outside and machine.running:
            machine.kill()
            machine.start()
            self._wait_until(lambda: joining not in self._state(index).isr)
        leader.store_lag_s = 0.3
        if self._wait_until(lambda: joining in self._state(index).isr):
            self.loop.network.stall(leader.name, machine.name)
            self.let_pass(self.rng.uniform(0.02, 0.5))
            if leader.running:
                self.turn_off(leader, power=False)
            self.let_pass(self.rng.uniform(0, 2))
            self.loop.network.heal_all()
        leader.store_lag_s = 0.0

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        for _ in range(200):
            if condition():
                return True
            self.let_pass(0.01)
        return False

    def _state(self, index: int) -> PartitionState:
        return list(self.states())[index]

    def may_lose_power(self, machine: SimBroker) -> bool:
        """Whether for every partition somebody else in sync is up, and not known to have crashed."""
        if self.is_synced:
            return True
        number = self.machines.index(machine) + 1
        safe = {
            index + 1
            for index, broker in enumerate(self.machines)
            if broker.ready and broker is not machine and self._is_settled(broker)
        }
        return all(safe & (set(state.isr) - {number}) for state in self.states())

    def _is_settled(self, machine: SimBroker) -> bool:
        broker = machine.broker
        if broker is None or any(partition.log.failed for partition in broker.table.partitions()):
            return False
        return broker.cluster.membership.is_settled

    def states(self) -> Iterator[PartitionState]:
        """Of all partitions, as the store has them."""
        tree = self.store.state
        for path, node in list(tree.nodes.items()):
            if path.startswith(nodes.PARTITIONS + "/") and path.count("/") == 3:
                yield nodes.decode_partition(path, node)

    # -- the end ---------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.loop.network.heal_all()
        for machine in self.machines:
            machine.files.mend()
            machine.files.make_room()
            self.loop.quicken(machine.name)
            machine.store_lag_s = 0.0
            if machine.running:
                machine.resume()
                machine.reach_store()
            else:
                self._down[machine] = self.loop.time()
        self._restart_due()

    def check_progress(self) -> None:
        """After the faults everything drains: all are in sync again, and writing goes on."""
        for _ in range(40):
            self.let_pass(0.5)
            if self._is_whole():
                break
        else:
            raise Violation(f"not in sync again: {list(self.states())}")
        before = len(self.history.acknowledged)
        for _ in range(20):
            self.let_pass(0.5)
            if len(self.history.acknowledged) > before:
                return
        raise Violation("nothing is acknowledged any more")

    def _is_whole(self) -> bool:
        if not all(machine.ready and self._is_settled(machine) for machine in self.machines):
            return False
        return all(len(state.isr) == BROKERS and not state.suspects for state in self.states())

    def check_data(self) -> None:
        """Read everything once more and hold it against what the clients were told."""
        for name in [f"producer-{n}" for n in range(PRODUCERS)] + [f"reader-{p}" for p in range(PARTITIONS)]:
            self.loop.crash(name)
        self.let_pass(1)
        stored = {}
        for partition in range(PARTITIONS):
            reading = read_partition(self.client("checker"), partition)
            stored[partition] = self.loop.run_until_complete(self.loop.spawn("checker", reading))
        for told in (self.history.acknowledged, self.history.seen):
            for (partition, offset), value in told.items():
                values = stored[partition]
                if offset >= len(values) or values[offset] != value:
                    found = values[offset] if offset < len(values) else None
                    raise Violation(f"offset {offset} of {partition} was {value!r}, now {found!r}")
        for values in stored.values():
            if len(set(values)) != len(values):
                raise Violation("a value is stored twice")
            for number in range(PRODUCERS):
                own = [int(v.split(b"-")[1]) for v in values if v.startswith(b"%d-" % number)]
                if own != sorted(own):
                    raise Violation(f"producer {number} was reordered")
        self._check_replicas()

    def _check_replicas(self) -> None:
        """Below the high watermark all replicas have the same bytes."""
        for index in range(PARTITIONS):
            replicas = [replica_of(machine, index) for machine in self.machines]
            limit = min(replica.high_watermark for replica in replicas)
            contents = [bytes_below(partition, limit) for partition in replicas]
            if any(content != contents[0] for content in contents):
                raise Violation(f"the replicas of {index} differ below {limit}")
            if not contents[0] and limit:
                raise Violation("there is nothing to compare")


def replica_of(machine: SimBroker, index: int) -> Partition:
    assert machine.broker is not None
    return machine.broker.table.by_name[TOPIC.encode()].partitions[index]


def bytes_below(partition: Partition, limit: int, start: int = 0) -> bytes:
    found = bytearray()
    for segment in partition.log.segments:
        for position, header in segment.walk(0, segment.size, wait=True):
            if start <= header.base_offset and header.last_offset < limit:
                found += segment.file.pread(header.size_bytes, position)
    return bytes(found)


@contextmanager
def watched(history: History) -> Iterator[None]:
    """Every leader that begins is told to the history: two of one epoch are a violation.

    So is a follower that asks for what comes next before all it has is durable, where the topic wants `synced`.
    """
    honest = Partition.lead

    def lead(partition: Partition, epoch: int, leading: Leading | None) -> None:
        if leading is not None:
            try:
                history.leads(partition.topic, partition.index, epoch, leading.node)
            except Violation as violation:  # a broker would take it for an error of its own
                history.wrong.append(str(violation))
        honest(partition, epoch, leading)

    honest_request = Fetcher._request

    def request(fetcher: Fetcher) -> Any:
        for partition in fetcher.partitions:
            log = partition.log
            if partition.sync_before_ack and not log.failed and log.synced_end.offset < log.end_offset:
                history.wrong.append(f"{partition.topic}-{partition.index} says it has what is not durable")
        return honest_request(fetcher)

    with patch.object(Partition, "lead", lead), patch.object(Fetcher, "_request", request):
        yield
    if history.wrong:
        raise Violation(history.wrong[0])
