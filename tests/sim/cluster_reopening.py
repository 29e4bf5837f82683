"""A cluster whose disks fail, and whose logs are opened again with what is left of them.

- busy: a leader's log fails and loses its end while the broker is at the files of new topics, and is long at it.
- after: while one log is opened again, another one, which is in sync once more, fails and loses its end.
- stays: a log cannot be opened again for a while.
- files: all are stopped cleanly; of one, files are gone or damaged, and its start meets an error or two.

Some writers stay with their broker, whatever the metadata says: one that leads no longer must not take what they send.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tests.sim.cluster_clients import History, Violation
from tests.sim.cluster_story import Story, replica_of, watched
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, TOPIC, batch_of, create_request, produce_request

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.storage.layout import LOG, PARTITION_FILE, RECOVERY_POINT_FILE
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

DAMAGES = (
    "directory",
    "owner",
    "rest",
    "point",
    "end",
    "front",
    "middle",
    "records",
    "front+point",
    "middle+point",
)
FAULTS = ("busy", "busy", "after", "after", "stays", "files", "files", "files", "other")
_RETRY_SECONDS = 5.0  # between two attempts to open what is offline
_HASTE_SECONDS = 0.01  # between two writes of somebody who must not miss the moment when a log is open again
_LAG_NOTICED_SECONDS = 2.0
_REGISTRATION = 4  # the call of a start that registers it: what fails there fails when the logs are open


async def insist(history: History, name: str, host: str, partition: int, pause_s: float = 0.2) -> None:
    """Write to one broker, whoever leads."""
    client, number = SimClient(host, PORT, timeout_s=1.0), 0
    while True:
        value, number = b"%s-%d" % (name.encode(), number), number + 1
        request = produce_request(partition, batch_of([value]), timeout_ms=300)
        try:
            answer = (await client.call(ApiKey.PRODUCE, request)).responses[0].partition_responses[0]
        except NETWORK_TROUBLE:
            pass
        else:
            if answer.error_code == ErrorCode.NONE:
                history.acked(partition, answer.base_offset, value)
        await asyncio.sleep(pause_s)


class ReopeningStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        for machine in self.machines:
            machine.files.drops_pages = True
        self._topics = 0
        self._insisting: list[str] = []

    def tell(self) -> None:
        """Each of what happens takes long."""
        with watched(self.history):
            self.begin()
            for _ in range(self.rng.randint(1, 2)):
                self.let_pass(self.rng.uniform(0.05, 1.0))
                self.misfortune()
            self.heal()
            self.check_progress()
            self.check_data()

    def begin_to_write(self) -> None:
        super().begin_to_write()
        for machine in self.machines:
            for partition in range(PARTITIONS):
                name = f"insists-{machine.name}-{partition}"
                self._insisting.append(name)
                self.spawn(name, insist(self.history, name, machine.name, partition))

    def check_progress(self) -> None:
        # A job that began on a slow disk takes its time; who is at one may be in sync still, but not for long.
        for _ in range(30):
            if self._wait_until(self._is_whole):
                self.let_pass(_LAG_NOTICED_SECONDS)
                if self._is_whole():
                    break
        super().check_progress()

    def _is_whole(self) -> bool:
        """Also on the brokers: a new topic is in the metadata before they have its logs."""
        brokers = [machine.broker for machine in self.machines if machine.broker is not None]
        return super()._is_whole() and all(TOPIC.encode() in broker.table.by_name for broker in brokers)

    def check_data(self) -> None:
        for name in self._insisting:
            self.loop.crash(name)
        super().check_data()
        for machine in self.machines:
            for index in range(PARTITIONS):
                if start := replica_of(machine, index).log.start_offset:
                    raise Violation(f"{machine.name}: {index} starts at {start}, and nobody deleted anything")

    def misfortune(self) -> None:
        fault = self.rng.choice(FAULTS)
        if fault == "other":
            super().misfortune()
        elif self._wait_until(self._is_whole):
            match fault:
                case "busy":
                    self._leader_fails_while_it_is_busy(self.rng.choice([0, 0, 1]))
                case "after":
                    self._one_log_fails_after_the_other()
                case "stays":
                    self._stays_offline(self.rng.choice(self.machines), self.rng.randrange(PARTITIONS))
                case "files":
                    self._lose_files(self.rng.choice(self.machines))

    # -- logs that fail --------------------------------------------------------------------------------------

    def _leader_fails_while_it_is_busy(self, index: int) -> None:
        """Its first log is open again, and may still be led as before, while the next ones are being opened."""
        leader = self.machines[self._state(index).leader - 1]
        self._fail_sync(leader, index)
        self.loop.slow_down(leader.name, self.rng.choice([1, 20, 60, 60]))
        end = self.loop.time() + _RETRY_SECONDS + 1
        hasty = f"hasty-{self._topics}"
        self.spawn(hasty, insist(self.history, hasty, leader.name, index, _HASTE_SECONDS))
        while self.loop.time() < end:
            self.let_pass(self.rng.uniform(0.3, 1.5))
            self._create_another(leader)
        self.loop.crash(hasty)
        self.loop.slow_down(leader.name, 1)

    def _one_log_fails_after_the_other(self) -> None:
        """The second one is back in sync by then. PendingReply all others go away for a moment."""
        machine = self.rng.choice(self.machines)
        number = self.machines.index(machine) + 1
        registered = self._registration(machine)
        machine.files.fail_next("write", f"*{TOPIC}/Partition-0/*.log")
        self._wait_until(lambda: replica_of(machine, 0).log.failed)
        self._wait_long_until(lambda: self._registration(machine) != registered)
        machine.files.mend()
        self.loop.slow_down(machine.name, self.rng.choice([20, 200, 600]))
        self._wait_until(lambda: number not in self._state(1).isr)
        is_back = self._wait_until(lambda: number in self._state(1).isr)
        self.let_pass(self.rng.uniform(0, 0.3))
        self.loop.slow_down(machine.name, 1)
        if is_back:
            self._fail_sync(machine, 1)
        self._wait_until(lambda: not replica_of(machine, 1).log.failed)
        for broker in self.machines:
            if broker is not machine and broker.running:
                self.turn_off(broker, power=False)
        self.let_pass(3)

    def _stays_offline(self, machine: SimBroker, index: int) -> None:
        # A checkpoint that began while the disk was slow may take 20 s more, and meets the fault at its end: it would
        # be told, rightly, when this story takes it for known.
        self.loop.quicken(machine.name)
        registered = self._registration(machine)
        machine.files.fail_next("open", f"*{TOPIC}/Partition-{index}/*.log", count=1 << 30)
        has_failed = self._fail_sync(machine, index)
        if has_failed and self._wait_long_until(lambda: self._registration(machine) != registered):
            self.let_pass(1)
            registered = self._registration(machine)
            self.let_pass(_RETRY_SECONDS * self.rng.choice([1, 2]))
            if self._registration(machine) != registered:
                raise Violation(f"{machine.name} begins anew for a log that it is known to have in doubt")
        machine.files.mend()

    def _registration(self, machine: SimBroker) -> int:
        return -1 if machine.broker is None else machine.broker.cluster.membership.epoch

    def _fail_sync(self, machine: SimBroker, index: int) -> bool:
        """As `flush.ms` or a checkpoint would find it. False: the sync did not come in time."""
        replica = replica_of(machine, index)
        assert machine.broker is not None
        machine.files.fail_next("sync", f"*{TOPIC}/Partition-{index}/*.log")
        machine.broker._group_commit.request(replica)
        return self._wait_until(lambda: replica.log.failed)

    def _wait_long_until(self, condition: Callable[[], bool]) -> bool:
        return any(self._wait_until(condition) for _ in range(int(_RETRY_SECONDS)))

    def _create_another(self, leader: SimBroker) -> None:
        self._topics += 1
        request = create_request({}, name=f"other-{self._topics}", replicas=3, timeout_ms=100)
        host = self.rng.choice([machine for machine in self.machines if machine is not leader]).name

        async def create() -> None:
            with suppress(*NETWORK_TROUBLE):
                await SimClient(host, PORT, timeout_s=0.3).call(ApiKey.CREATE_TOPICS, request)

        self.spawn("admin", create())

    # -- files that are gone ---------------------------------------------------------------------------------

    def _lose_files(self, machine: SimBroker) -> None:
        rng = self.rng
        is_last = rng.random() < 0.6
        for broker_info in sorted(
            rng.sample(self.machines, len(self.machines)), key=lambda broker: is_last and broker is machine
        ):
            broker_info.stop()
        for index in rng.choice([[0], [1], [0, 1]]):
            self._damage(machine, index, rng.choice(DAMAGES))
            if rng.random() < 0.5:
                machine.files.fail_next("open", f"*{TOPIC}/Partition-{index}/*.log")
        if rng.random() < 0.3:
            machine.store_fault = rng.randrange(_REGISTRATION, _REGISTRATION + 2), rng.choice(list(Fault))
        order = rng.sample(self.machines, len(self.machines))
        if rng.random() < 0.6:
            order.sort(key=lambda broker: broker is not machine)
        for place, broker in enumerate(order):
            self._down[broker] = self.loop.time() + place * rng.choice([0.1, 1.0, 4.0])
        self.let_pass(rng.uniform(1, 9))
        machine.files.mend()

    def _damage(self, machine: SimBroker, index: int, what: str) -> None:
        directory = machine.data / "topics" / TOPIC / f"Partition-{index}"
        files = machine.files
        if what.endswith("+point"):
            what = what.removesuffix("+point")
            files.unlink(directory / RECOVERY_POINT_FILE)
        match what:
            case "directory":
                files.remove_tree(directory)
            case "owner":
                files.write_atomically(directory / PARTITION_FILE, b"")
            case "rest":
                for name in files.list_dir(directory):
                    if name != PARTITION_FILE:
                        files.unlink(directory / name)
            case "front" | "middle" | "records":
                logs = [name for name in files.list_dir(directory) if name.endswith(LOG)]
                middle = self.rng.randrange(len(logs))
                parts = {"front": slice(middle), "middle": slice(middle, middle + 1), "records": slice(None)}
                for name in logs[parts[what]]:
                    files.unlink(directory / name)
            case "point" | "end":
                last = [name for name in files.list_dir(directory) if name.endswith(LOG)][-1]
                file = files.open(directory / last)
                file.truncate(self.rng.randint(0, file.size()))
                file.close()
                if what == "point":
                    files.unlink(directory / RECOVERY_POINT_FILE)
