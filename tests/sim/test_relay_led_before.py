"""A broker leads a retired partition again, after an unclean election gave offsets that it moved to other records.

What it knew of the target is of the other records. Until the target has told how far it is, nothing of its log counts
as moved, so nothing goes.
"""

import os

import pytest
from tests.sim.cluster_clients import Violation, send_until_acknowledged
from tests.sim.cluster_retiring import INTO, RETIRED
from tests.sim.cluster_story import bytes_below
from tests.sim.messages import batch_of, idempotent
from tests.sim.test_relay_commits import FAR, CommitStory

from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.services.hosting import roles
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 50, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
FIRST, OTHER, *TARGETS = 1, 2, 3, 4


class LedBeforeStory(CommitStory):
    replicas = (tuple(TARGETS), (FIRST, OTHER))

    @property
    def configs(self) -> dict[str, str]:
        return {**super().configs, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}

    def put(self, producer: int, count: int, leader: SimBroker) -> set[bytes]:
        client = self.client(f"writer-{producer}")
        client.knows(RETIRED, leader.name)
        values = [b"%d-%d" % (producer, number) for number in range(count)]
        for number, value in enumerate(values):
            send = send_until_acknowledged(client, RETIRED, batch_of([value], idempotent(producer, number)))
            self.loop.run_until_complete(self.loop.spawn("writer", send))
        return set(values)

    def tell(self) -> None:
        first, other, *targets = self.machines
        self.begin()
        self.let_pass(1)
        self.loop.crash("producer")
        self.until_moved()
        other.kill()
        self.loop.run_until(lambda: self._state(RETIRED).isr == (FIRST,))
        self.put(71, self.rng.randint(10, 20), first)
        self.until_moved()
        # The first one is cut off, and who never had these records is elected.
        other.start()
        self.loop.network.stall(first.name, other.name)
        first.cut_off()
        self.loop.run_until(lambda: self._state(RETIRED).leader == OTHER)
        self.let_pass(self.rng.uniform(0, 1))
        first.reach_store()
        self.loop.network.heal_all()
        for target in targets:
            target.kill()
        self.loop.run_until(lambda: set(self._state(RETIRED).isr) == {FIRST, OTHER})
        acknowledged = self.put(72, self.rng.randint(5, 12), other)
        self.let_pass(self.rng.uniform(0, 0.5))
        other.kill()
        self.loop.run_until(lambda: self.leader(RETIRED) is first)
        self.let_pass(self.rng.uniform(0, 3))
        for machine in (*targets, other):
            machine.start()
        self.let_pass(15)
        lost = acknowledged - self._kept(self.source()) - self._kept(self.replica(targets[0], INTO))
        if lost:
            raise Violation(f"acknowledged, and in no log: {lost}")

    def _kept(self, partition: Partition | None) -> set[bytes | None]:
        assert partition is not None
        return {record.value for record in read_all(memoryview(bytes_below(partition, FAR)))}


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_another_leader_wrote_in_the_place_of_moved_records_is_moved_too(seed: int) -> None:
    with SimLoop(seed) as loop:
        LedBeforeStory(loop).tell()


def test_the_checker_finds_a_leader_that_remembers_what_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "lead_anew", lambda _: None)
    with SimLoop(1) as loop, pytest.raises(Violation):
        LedBeforeStory(loop).tell()
