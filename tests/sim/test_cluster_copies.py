"""Followers whose log is of no use to their leader: when they are copied anew, and when not."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_story import BROKERS, replica_of
from tests.sim.test_cluster_deletions import delete, read
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.storage.compaction.checkpoint import Cleaned
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop

BROKEN = 1  # a partition


class UncleanScene(Scene):
    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        configs = {
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "true",
            "retention.ms": "-1",
        }
        self.do(create_topic(self.client("admin"), BROKERS, configs))
        self.until_whole()

    def write(self, count: int) -> None:
        for _ in range(count):
            assert self.produce(-1) is ErrorCode.NONE

    def kill(self, *machines: SimBroker) -> None:
        for machine in machines:
            machine.kill()
        self.let_pass(SESSION_SECONDS + 1)

    def place(self, machine: SimBroker) -> tuple[int, int]:
        log = replica_of(machine, 0).log
        return log.start_offset, log.end_offset


@pytest.fixture
def scene() -> Iterator[UncleanScene]:
    with SimLoop(3) as loop:
        scene = UncleanScene(loop, synced=False)
        scene.begin()
        yield scene


@pytest.mark.parametrize("behind", [0, 8], ids=["behind its end", "within"])
def test_an_empty_log_of_another_history_is_copied_from_the_beginning(
    scene: UncleanScene, behind: int
) -> None:
    """It begins where a leader that is lost had deleted everything, further than who leads now has come."""
    scene.write(5)
    broker = scene.leader()
    two, three = scene.followers()
    scene.let_pass(1)
    scene.kill(two, three)
    scene.write(5)
    assert delete(scene, 10) == (ErrorCode.NONE, 10)
    three.start()
    scene.let_pass(4)
    assert scene.place(three) == (10, 10)
    scene.kill(broker, three)
    two.start()
    scene.let_pass(4)
    assert scene.place(two) == (0, 5)
    scene.write(behind)
    three.start()
    scene.let_pass(4)
    scene.write(8 - behind)
    scene.let_pass(3)
    assert scene.place(three) == (0, 13)
    scene.kill(two)
    assert read(scene, 5) == (ErrorCode.NONE, 8)


def test_a_topic_that_never_compacted_has_no_tombstones_to_miss(scene: UncleanScene) -> None:
    """A replica on a new disk says nothing about what others have."""
    scene.write(5)
    two = scene.followers()[0]
    scene.kill(two)
    two.files.remove_tree(two.data / "topics" / "orders")
    two.files.sync_all(two.data)
    two.start()
    scene.until_whole()
    assert scene.place(two) == (0, 5)
    assert replica_of(two, 0).log.cleaned == Cleaned()


@pytest.fixture
def crashed() -> Iterator[Scene]:
    """All have lost their processes, and what they had in sync is for the ends of their logs to tell."""
    with SimLoop(3) as loop:
        scene = Scene(loop, synced=False)
        scene.begin()
        for _ in range(5):
            assert scene.produce(-1) is ErrorCode.NONE
        scene.let_pass(1)
        yield scene


def cannot_open(machine: SimBroker) -> None:
    machine.files.fail_next("open", f"*/Partition-{BROKEN}/*.log", count=10**9)


@pytest.mark.parametrize("bad", [0, 1], ids=["the controller", "another"])
def test_one_log_that_cannot_be_opened_holds_up_no_other_partition(crashed: Scene, bad: int) -> None:
    for machine in crashed.machines:
        machine.kill()
    crashed.let_pass(SESSION_SECONDS + 1)
    cannot_open(crashed.machines[bad])
    for machine in crashed.machines:
        machine.start()
        crashed.let_pass(3)
    crashed.let_pass(5)
    leaders = [state.leader for state in crashed.states()]
    assert leaders[BROKEN] < 0  # what it has may be what all others lost
    assert all(leader > 0 for index, leader in enumerate(leaders) if index != BROKEN)


def test_where_the_topic_allows_it_a_log_that_cannot_be_opened_is_given_up(crashed: Scene) -> None:
    crashed.set_topic("unclean.leader.election.enable", "true")
    bad = crashed.machines[1]
    for machine in crashed.machines:
        machine.kill()
    cannot_open(bad)
    for machine in crashed.machines:
        machine.start()
    crashed.let_pass(5)
    assert crashed._state(BROKEN).leader < 0  # it may only take a while
    crashed.let_pass(15)
    assert crashed._state(BROKEN).leader not in (-1, 2)
