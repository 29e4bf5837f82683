"""Transactional producers of both kinds in a cluster to which everything happens (invariant 5).

Four transactional ids, two of each kind. Their processes die by themselves at any request, are killed, fall asleep and
wake up when another has their id, or are replaced while they live. Beside that happens to brokers what happens in
`cluster_story`; their clocks, by which transactions take too long, jump only in `NearTransactionStory`.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tests.sim.cluster_clients import Violation
from tests.sim.cluster_near import NEAREST
from tests.sim.cluster_story import FAULTS, Story
from tests.sim.group_client import GroupClient
from tests.sim.messages import PARTITIONS
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactional_clients import Producer, group_of
from tests.sim.transactional_readers import NearClient, Reader, fetch_offset, watch_offset

from penstock.groups.transactions.states import IDLE
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop

IDS = 4
SETTINGS = {
    "penstock.transactions.enable": "true",
    "transaction.state.log.num.partitions": "2",
    "min.insync.replicas": "2",
}
# The longest that a transaction may be open, and what its end may take: a broker that is gone is waited for.
_ENDED_SECONDS = 60


class TransactionStory(Story):
    faults = tuple(fault for fault in FAULTS if fault != "jump")

    settings: ClassVar[Mapping[str, str]] = SETTINGS

    def __init__(self, loop: SimLoop) -> None:
        is_synced = loop.random("durability").random() < 0.3
        settings = {**self.settings, "penstock.ack.after": "synced" if is_synced else "auto"}
        super().__init__(loop, settings, synced=is_synced)
        self.transactions = TransactionHistory()
        self._started = 0
        self._processes: list[str] = []
        self._asleep: list[str] = []

    def create(self, configs: dict[str, str]) -> None:
        # Where batches are opened first, much may come between the coordinator's word and the append.
        codec = self.rng.choice(["producer", "gzip"])
        super().create({**configs, "compression.type": codec})

    def begin_to_write(self) -> None:
        for number in range(IDS):
            self._start_producer(number)

    def _start_producer(self, number: int) -> None:
        self._started += 1
        name = f"worker-{number}/{self._started}"
        self.transactions.latest[number] = name
        self._processes.append(name)
        producer = Producer(
            self.transactions,
            name,
            number,
            self.loop.random(name),
            lambda: self.client(name),
            lambda key, key_type: GroupClient(self, name, key, key_type),
            is_second=number % 2 == 1,
        )
        self.spawn(name, producer.live())

    def begin_to_read(self) -> None:
        for partition in range(PARTITIONS):
            for committed in (False, True):
                name = f"reader-{partition}" if committed else f"raw-{partition}"
                reader = Reader(self.transactions, self.client(name), partition, committed=committed)
                self.spawn(name, reader.follow())
        for number in range(IDS):
            name = f"offsets-{number}"
            client = GroupClient(self, name, group_of(number))
            self.spawn(name, watch_offset(self.transactions, client, number, self.loop.random(name)))

    # -- faults ----------------------------------------------------------------------------------------------

    def misfortune(self) -> None:
        if self.rng.random() < 0.4:
            self._replace_a_producer()
        if self._asleep and self.rng.random() < 0.5:
            self._wake(self._asleep.pop(self.rng.randrange(len(self._asleep))))
        if self.rng.random() < 0.4:
            self._hold_back_what_a_producer_sends()
        if self.rng.random() < 0.2:
            self._replace_a_coordinator_that_does_not_hear_of_it()
        else:
            super().misfortune()

    def _hold_back_what_a_producer_sends(self) -> None:
        """To one broker; the others go on hearing of it, and it may give up meanwhile what then arrives."""
        name, broker = self.transactions.latest[self.rng.randrange(IDS)], self.rng.choice(self.names)
        for _ in range(self.rng.randint(1, 3)):
            self.loop.network.stall(name, broker, one_way=True)
            self.let_pass(self.rng.uniform(0.1, 0.8))
            self.loop.network.heal(name, broker)
            self.let_pass(self.rng.uniform(0.0, 0.3))

    def _replace_a_coordinator_that_does_not_hear_of_it(self) -> None:
        """Producers look for theirs again and again meanwhile, and may find the one that was."""
        leading = [machine for machine in self.machines if machine.ready and _coordinates(machine)]
        if not leading:
            return
        machine = self.rng.choice(leading)
        machine.cut_off()
        self.let_pass(SESSION_SECONDS * self.rng.uniform(1, 2))
        end = self.loop.time() + SESSION_SECONDS * self.rng.uniform(1, 2)
        while self.loop.time() < end:
            self.let_pass(self.rng.uniform(0.01, 0.1))
            for name in self.transactions.latest.values():
                if self.rng.random() < 0.2:
                    for broker in self.names:
                        self.loop.network.cut(name, broker)
        machine.reach_store()

    def _replace_a_producer(self) -> None:
        number = self.rng.randrange(IDS)
        old = self.transactions.latest[number]
        match self.rng.choice(["killed", "asleep", "asleep", "alive"]):
            case "killed":
                self.loop.crash(old)
            case "asleep":
                self.loop.pause(old)
                self._asleep.append(old)
        self._start_producer(number)

    def _wake(self, name: str) -> None:
        self.loop.pause(name, resume=True)

    def heal(self) -> None:
        while self._asleep:
            self._wake(self._asleep.pop())
        super().heal()

    # -- the end ---------------------------------------------------------------------------------------------

    def check_progress(self) -> None:
        for _ in range(40):
            self.let_pass(0.5)
            if self._is_whole():
                break
        else:
            raise Violation(f"not in sync again: {list(self.states())}")
        before = self.transactions.told[True]
        for _ in range(40):
            self.let_pass(0.5)
            if self.transactions.told[True] > before:
                break
        else:
            raise Violation("no transaction is committed any more")

    def check_data(self) -> None:
        for name in self._processes:
            self.loop.crash(name)
        self._check_all_ends()
        self.let_pass(1)
        for kind in ("reader", "raw"):
            for partition in range(PARTITIONS):
                self.loop.crash(f"{kind}-{partition}")
        stored = {}
        for partition in range(PARTITIONS):
            self._read(partition, committed=False)
            stored[partition] = self._read(partition, committed=True)
        offsets = {}
        for number in range(IDS):
            self.loop.crash(f"offsets-{number}")
            looking = fetch_offset(GroupClient(self, "checker", group_of(number)), number)
            offsets[number] = self.loop.run_until_complete(self.loop.spawn("checker", looking))
        self.transactions.check(stored, offsets)
        self._check_replicas()

    def _read(self, partition: int, *, committed: bool) -> dict[int, bytes]:
        reader = Reader(self.transactions, self.client("checker"), partition, committed=committed)
        found: dict[int, bytes] = self.loop.run_until_complete(
            self.loop.spawn("checker", reader.to_the_end())
        )
        return found

    def _check_all_ends(self) -> None:
        """Nobody ends what is open now but its coordinator."""
        left: list[str] = []
        for _ in range(_ENDED_SECONDS * 2):
            self.let_pass(0.5)
            left = list(self._open())
            if not left:
                return
        raise Violation(f"transactions without a producer do not end: {left}")

    def _open(self) -> Iterator[str]:
        for machine in self.machines:
            broker = machine.broker
            assert broker is not None
            for partition in broker.table.partitions():
                if partition.log.producers.unstable or _is_held(partition):
                    yield f"{machine.name}: {partition.topic}-{partition.index} {partition.log.producers.unstable}"
            for shard in broker.services.transaction_coordinator.begun():
                for subject in shard.state.subjects():
                    if subject.state not in IDLE:
                        yield f"{machine.name}: {subject.id} is {subject.state.value}"


class NearTransactionStory(TransactionStory):
    """With consumers that stay at one broker, whether it leads or follows; and clocks jump."""

    faults = FAULTS

    settings: ClassVar[Mapping[str, str]] = {**SETTINGS, **NEAREST}

    def begin_to_read(self) -> None:
        super().begin_to_read()
        for broker in self.names:
            name = f"near-{broker}"
            client = NearClient(self.names, self.loop.random(f"{name}/client"), broker)
            self.spawn(name, Reader(self.transactions, client, 0, committed=True).follow())


def _coordinates(machine: SimBroker) -> bool:
    return machine.broker is not None and any(machine.broker.services.transaction_coordinator.begun())


def _is_held(partition: Partition) -> bool:
    limits = partition.limits
    if limits.last_stable.offset > limits.high_watermark.offset:
        raise Violation(f"{partition.topic}-{partition.index}: last stable offset above the high watermark")
    return limits.last_stable.offset < limits.high_watermark.offset
