"""A cluster to which everything happens that is no plain death: what is late, lost or read wrong, and raised errors.

- A follower reads nothing for a while, and hears late of what the cluster decides: its leader's answer waits there,
  as a place in a file, while another one leads and the file's end is cut off.
- Reads of logs fail, here and there.
- A start loses a word from or to the coordination store, at any step, or hears it late.
- A task fails as none should: the process ends, and is started again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sim.cluster_clients import History
from tests.sim.cluster_story import Story
from tests.sim.messages import TOPIC

from penstock.coordination.memory import Fault
from penstock.core.files import Files
from penstock.replication.following import Follower
from penstock.replication.partition import Partition
from penstock.storage.log import Log
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_link import NETWORK_SECONDS
from penstock.testing.sim_loop import SimLoop

FAULTS = ("behind", "behind", "start", "start", "start", "start", "read", "read", "choke", "raise", "other")
# The calls of a start: seven, so that the fault may as well strike just behind it.
_CALLS_MAX = 8
_REGISTRATION = 4  # where its calls begin: what fails there fails when the logs are open


class HostileStory(Story):
    def __init__(self, loop: SimLoop, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(loop, settings)
        for machine in self.machines:
            machine.may_break = True

    def tell(self) -> None:
        with one_writer(self.history):
            super().tell()

    def misfortune(self) -> None:
        rng, network = self.rng, self.loop.network
        machine = rng.choice(self.machines)
        match rng.choice(FAULTS):
            case "behind":
                self._leader_changes_behind_a_slow_follower()
            case "start" if machine.running and self._all_ready():
                self._start_with_trouble(machine)
            case "read":
                machine.files.fail_next("read", "*.log", count=rng.randint(1, 3))
                self.let_pass(rng.uniform(0.05, 0.5))
                machine.files.mend()
            case "choke":
                network.choke(machine.name, rng.choice([*self.names, "reader-0", "reader-1"]))
                self.let_pass(rng.uniform(0.1, 2))
                network.heal_all()
            case "raise" if machine.ready:
                self._raise_in_a_fetcher(machine)
            case "other":
                super().misfortune()

    # -- what is late ----------------------------------------------------------------------------------------

    def _leader_changes_behind_a_slow_follower(self) -> None:
        """The follower has a record that the next leader lacks; the answer with the next one waits at its leader."""
        state = self._state(0)
        if state.leader < 0 or len(state.isr) < len(self.machines) or not self._all_ready():
            return
        leader = self.machines[state.leader - 1]
        slow, heir = self.rng.sample([machine for machine in self.machines if machine is not leader], 2)
        network = self.loop.network
        network.stall(leader.name, heir.name)
        slow.store_lag_s = SESSION_SECONDS * 4
        if self._wait_until(lambda: self._end(slow) > self._end(heir)):
            network.choke(leader.name, slow.name)
            self._wait_until(lambda: self._end(leader) > self._end(slow))
            leader.cut_off()
            self._wait_until(lambda: self._state(0).leader == self.machines.index(heir) + 1)
            leader.reach_store()
            network.heal(leader.name, heir.name)
            self._wait_until(lambda: self._is_cut(leader, heir))
            self.let_pass(self.rng.uniform(0, 0.5))
        network.heal_all()
        self.let_pass(0.2)
        slow.store_lag_s = 0.0

    def _all_ready(self) -> bool:
        return all(machine.ready for machine in self.machines)

    def _is_cut(self, leader: SimBroker, heir: SimBroker) -> bool:
        """Whether what led follows, has cut off what its heir never had, and has taken over more than it had."""
        ours, theirs = _replica(leader), _replica(heir)
        if ours is None or theirs is None or ours.is_leader:
            return False
        return (
            ours.log.epochs.latest == theirs.log.epochs.latest
            and ours.log.end_offset == theirs.log.end_offset
        )

    def _end(self, machine: SimBroker) -> int:
        replica = _replica(machine)
        return -1 if replica is None else replica.log.end_offset

    # -- starts ----------------------------------------------------------------------------------------------

    def _start_with_trouble(self, machine: SimBroker) -> None:
        """A word from or to the store is lost, answers of others come late, and one that leads may die meanwhile."""
        rng, network = self.rng, self.loop.network
        others = [broker for broker in self.machines if broker is not machine]
        machine.kill()
        first = rng.choice((0, _REGISTRATION, _REGISTRATION))
        machine.store_fault = rng.randrange(first, _CALLS_MAX), rng.choice(list(Fault))
        machine.store_lag_s = rng.choice([0.0, 0.0, 0.05, 0.3])
        for broker_info in others:
            network.set_latency(machine.name, broker_info.name, 1e-3, rng.choice([1e-3, 0.2, 0.6]))
        machine.start()
        self.let_pass(rng.uniform(0.5, 3))
        leader = self._state(0).leader
        if leader > 0 and self.machines[leader - 1] in others and rng.random() < 0.5:
            self.turn_off(self.machines[leader - 1], power=False)
            self.let_pass(rng.uniform(0.5, 2))
        for other in others:
            network.set_latency(machine.name, other.name, *NETWORK_SECONDS)
        machine.store_lag_s, machine.store_fault = 0.0, None

    # -- raised errors -----------------------------------------------------------------------------------------

    def _raise_in_a_fetcher(self, machine: SimBroker) -> None:
        assert machine.broker is not None
        follower = machine.broker.cluster.fetchers.context.follower

        async def fails(*_: Any) -> bool:
            raise RuntimeError("a bug that nobody foresaw")

        follower.take = fails  # type: ignore[method-assign]
        self.let_pass(self.rng.uniform(0.3, 2))
        follower.take = Follower.take.__get__(follower)  # type: ignore[method-assign]


@contextmanager
def one_writer(history: History) -> Iterator[None]:
    """Files of a log belong to who opened them last; one that was given up and goes on writing is a violation.

    What two write is mostly the same, so that the damage would seldom be seen.
    """
    writers: dict[tuple[Files, Path], Log] = {}
    honest_init, honest_append = Log.__init__, Log.append

    def init(log: Log, files: Files, directory: Path, *args: Any, **options: Any) -> None:
        honest_init(log, files, directory, *args, **options)
        writers[files, directory] = log

    def append(log: Log, *args: Any, **options: Any) -> Any:
        if writers.get((log.files, log.directory)) is not log:
            history.wrong.append(f"two write to the files in {log.directory}")
        return honest_append(log, *args, **options)

    with patch.object(Log, "__init__", init), patch.object(Log, "append", append):
        yield


def _replica(machine: SimBroker) -> Partition | None:
    topic = None if machine.broker is None else machine.broker.table.by_name.get(TOPIC.encode())
    return None if topic is None else topic.partitions.get(0)
