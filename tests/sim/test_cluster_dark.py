"""Machines that lose their power without a word: no port refuses, and their sessions last. Told one by one.

Those that are left are whole, and nobody may be given up for one that is only registered.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.sim.cluster_clients import create_topic, read_partition
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

VALUES = [b"%d" % number for number in range(6)]


class DarkScene(Scene):
    """Records are acknowledged from page caches."""

    def __init__(self, loop: SimLoop, replicas: int, min_isr: int) -> None:
        super().__init__(loop, synced=False)
        for machine in self.machines:
            machine.start()
        self.until(lambda: all(machine.ready for machine in self.machines))
        self.do(create_topic(self.client("admin"), replicas, {"min.insync.replicas": str(min_isr)}))
        self.until(lambda: all(len(state.isr) == replicas for state in self.states()))
        self.let_pass(0.5)
        # Where there is one, a partition that the controller has no replica of.
        controller = self.machines.index(self.controller) + 1
        without = [index for index, state in enumerate(self.states()) if controller not in state.replicas]
        self.index = without[0] if without else 0

    def until(self, condition: Callable[[], bool]) -> None:
        assert self._wait_until(condition), list(self.states())

    @property
    def controller(self) -> SimBroker:
        return next(
            machine
            for machine in self.machines
            if machine.broker and machine.broker.cluster.controller.is_active
        )

    @property
    def state(self) -> PartitionState:
        return self._state(self.index)

    def machine(self, broker: int) -> SimBroker:
        return self.machines[broker - 1]

    def write(self, values: list[bytes]) -> None:
        for value in values:
            leader = SimClient(self.machine(self.state.leader).name, PORT)
            answer = self.do(
                leader.call(ApiKey.PRODUCE, produce_request(self.index, batch_of([value]), acks=-1))
            )
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def move(self, target: list[int] | None) -> None:
        controller = self.controller
        assert controller.broker is not None
        reassignments = controller.broker.services.reassignments
        work = reassignments.alter([((TOPIC, self.index), target)], may_change_factor=True)
        assert self.loop.run_until_complete(self.loop.spawn(controller.name, work)) == [None]

    def go_dark(self, *machines: SimBroker) -> None:
        for machine in machines:
            for other in self.machines:
                if other is not machine:
                    self.loop.network.stall(machine.name, other.name)
        for machine in machines:
            machine.power_cut()
        self.let_pass(0.05)

    def light_up(self, *machines: SimBroker) -> None:
        self.loop.network.heal_all()
        for machine in machines:
            machine.start()

    def read(self) -> list[bytes]:
        self.until(lambda: self.state.leader > 0)
        self.let_pass(1)
        found: Any = self.loop.run_until_complete(
            self.loop.spawn("checker", read_partition(self.client("checker"), self.index))
        )
        return list(found)


@pytest.fixture(params=range(4))
def loop(request: pytest.FixtureRequest) -> Iterator[SimLoop]:
    with SimLoop(request.param) as loop:
        yield loop


def test_one_that_is_stopped_while_the_others_are_dark_is_asked_when_it_is_back(loop: SimLoop) -> None:
    scene = DarkScene(loop, replicas=3, min_isr=2)
    scene.write(VALUES)
    stopped = scene.controller
    dark = [machine for machine in scene.machines if machine is not stopped]
    scene.go_dark(*dark)
    stopped.stop()
    scene.light_up(*dark)
    scene.let_pass(5)
    stopped.start()
    assert scene.read() == VALUES


def test_with_a_minimum_of_one_a_leader_that_is_killed_after_its_follower_went_dark_leads_again(
    loop: SimLoop,
) -> None:
    scene = DarkScene(loop, replicas=2, min_isr=1)
    scene.write(VALUES)
    leader = scene.machine(scene.state.leader)
    (follower,) = [
        scene.machine(replica) for replica in scene.state.replicas if replica != scene.state.leader
    ]
    scene.go_dark(follower)
    leader.kill()
    scene.let_pass(0.4)
    scene.light_up(follower)
    scene.let_pass(3)
    leader.start()
    assert scene.read() == VALUES
    assert replica_of(leader, scene.index).log.end_offset == len(VALUES)


@pytest.mark.parametrize("loop", [0, 1, 3], indirect=True)
def test_when_fewer_have_to_be_in_sync_who_was_eligible_is_asked_still(loop: SimLoop) -> None:
    """The one in sync is dark, and the minimum is lowered before anybody hears of it."""
    scene = DarkScene(loop, replicas=2, min_isr=2)
    assert scene.machines.index(scene.controller) + 1 not in scene.state.replicas, "choose another seed"
    scene.write(VALUES)
    leader = scene.machine(scene.state.leader)
    (follower,) = [
        scene.machine(replica) for replica in scene.state.replicas if replica != scene.state.leader
    ]
    follower.stop()
    scene.until(lambda: len(scene.state.isr) == 1)
    scene.go_dark(leader)
    scene.set_topic_at(scene.controller, "min.insync.replicas", "1")
    scene.let_pass(0.3)
    scene.light_up(leader)
    scene.let_pass(3)
    follower.start()
    assert scene.read() == VALUES


def test_the_only_replica_that_stays_is_durable_before_the_others_go(loop: SimLoop) -> None:
    scene = DarkScene(loop, replicas=3, min_isr=2)
    scene.write(VALUES)
    leader = scene.machine(scene.state.leader)
    loop.slow_down(leader.name, 3000)
    scene.move([scene.state.leader])
    scene.let_pass(0.1)
    scene.go_dark(leader)
    loop.slow_down(leader.name, 1)
    scene.light_up(leader)
    assert scene.read() == VALUES
    scene.until(lambda: len(scene.state.replicas) == 1)
    scene.go_dark(leader)
    scene.light_up(leader)
    assert scene.read() == VALUES


def test_replicas_do_not_go_while_those_that_stay_are_dark(loop: SimLoop) -> None:
    scene = DarkScene(loop, replicas=3, min_isr=2)
    scene.write(VALUES)
    kept = scene.controller
    dark = [machine for machine in scene.machines if machine is not kept]
    scene.go_dark(*dark)
    scene.move([scene.machines.index(broker) + 1 for broker in dark])
    scene.let_pass(0.5)
    scene.light_up(*dark)
    assert scene.read() == VALUES


def test_a_move_that_is_cancelled_keeps_the_newcomer_while_it_is_needed(loop: SimLoop) -> None:
    scene = DarkScene(loop, replicas=2, min_isr=2)
    leader = scene.state.leader
    (away,) = [replica for replica in scene.state.replicas if replica != leader]
    (newcomer,) = {1, 2, 3} - {leader, away}
    loop.network.stall(scene.machine(leader).name, scene.machine(newcomer).name)
    scene.move([away, newcomer])
    scene.machine(away).stop()
    loop.network.heal_all()
    scene.until(lambda: newcomer in scene.state.isr)
    scene.write(VALUES)
    scene.move(None)
    scene.let_pass(1)
    scene.go_dark(scene.machine(leader))
    scene.light_up(scene.machine(leader), scene.machine(away))
    assert scene.read() == VALUES
    scene.until(lambda: {*scene.state.replicas} == {leader, away})
