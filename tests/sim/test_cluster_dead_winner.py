"""Nobody is given up for one that is only registered (ADR 8): not for the winner of an election by log end either.

A leader and two followers, a fourth broker is the controller, and records are acknowledged from page caches. The leader
loses its power without a word just when both followers lose their sessions (their processes go on). They register
again, the leader comes back with nothing, and all three are asked for their ends: one follower tells, and loses its
power. It is elected all the same. The other one was up all the time, and has everything.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.test_cluster_dark import VALUES, DarkScene
from tests.sim.test_cluster_scenes import Scene

from penstock.controller import log_end_election
from penstock.controller.election import ReplicaEnd, lead_by_log_end
from penstock.coordination.nodes import PartitionState
from penstock.testing.sim_broker import SESSION_SECONDS
from penstock.testing.sim_loop import SimLoop

SEEDS = [0, 1, 3, 4]


class WinnerScene(DarkScene):
    def __init__(self, loop: SimLoop, *, unclean: bool) -> None:
        self.unclean = unclean
        Scene.__init__(self, loop, synced=False, brokers=4)
        for machine in reversed(self.machines):  # the fourth is the controller
            machine.start()
            self.until(lambda machine=machine: machine.ready)
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": str(unclean).lower()}
        self.do(create_topic(self.client("admin"), 3, configs))
        self.until(lambda: all(len(state.isr) == 3 for state in self.states()))
        self.let_pass(0.5)
        controller = self.machines.index(self.controller) + 1
        self.index = next(
            index for index, state in enumerate(self.states()) if controller not in state.replicas
        )

    def tell(self) -> list[bytes]:
        self.write(VALUES)
        controller, state = self.controller, self.state
        leader = self.machine(state.leader)
        winner, whole = (self.machine(replica) for replica in state.replicas if replica != state.leader)
        for machine in (winner, whole):
            machine.cut_off()
        self.let_pass(SESSION_SECONDS * (0.9 if self.unclean else 0.8))
        self.go_dark(leader)
        self.until(lambda: len(self.state.isr) == 1)
        for machine in (winner, whole):
            machine.reach_store()
            if self.unclean:  # else somebody leads before all are back
                self.loop.network.stall(controller.name, machine.name)
        self.until(lambda: self.state.leader == -1)
        if not self.unclean:
            self.let_pass(2)
            self.loop.network.stall(controller.name, whole.name)  # its answer is late
        for machine in (winner, whole, controller):
            self.loop.network.heal(leader.name, machine.name)
        leader.start()
        self.until(lambda: leader.ready and not self.state.eligible)
        if self.unclean:
            for machine in (winner, whole):
                self.loop.network.heal(controller.name, machine.name)
            self.let_pass(0.05)  # they are asked anew
            self.loop.network.stall(controller.name, whole.name)
        self.let_pass(0.5)
        assert self.state.leader == -1
        self.go_dark(winner)  # it has told
        self.loop.network.heal(controller.name, whole.name)
        self.until(lambda: self.state.leader != -1)
        self.let_pass(3)
        self.light_up(winner)
        self.let_pass(5)
        read: list[bytes] = self.read()
        return read


def tell(seed: int, *, unclean: bool) -> list[bytes]:
    with SimLoop(seed) as loop:
        return WinnerScene(loop, unclean=unclean).tell()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("unclean", [False, True])
def test_what_was_acknowledged_is_read(seed: int, unclean: bool) -> None:
    """Also where an unclean election may be: nobody has to be given up."""
    assert tell(seed, unclean=unclean) == VALUES


@pytest.mark.parametrize("unclean", [False, True])
def test_it_finds_others_given_up_for_who_only_told(unclean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(
        state: PartitionState, ends: Mapping[int, ReplicaEnd], *, unclean: bool = False
    ) -> PartitionState | None:
        after = lead_by_log_end(state, ends, unclean=unclean)
        return after and replace(after, suspects=())

    monkeypatch.setattr(log_end_election, "lead_by_log_end", trusting)
    assert not all(tell(seed, unclean=unclean) == VALUES for seed in SEEDS)
