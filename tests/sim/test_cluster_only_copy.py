"""The last replica in sync lost files that its recovery point names: it leads, and what it knows is not forgotten.

Others stopped before it and may be whole; they lose nothing by it. It says itself what it lost.
"""

from collections.abc import Callable, Iterator

import pytest
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_deletions import delete
from tests.sim.test_cluster_lost_files import (
    RECORDS,
    FilesScene,
    all_records_are_gone,
    last_are_gone,
    names_no_segments,
    take,
)

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop

Damage = Callable[[SimBroker], None]


def middle_is_gone(machine: SimBroker) -> None:
    take(machine, slice(-3, -2))


DAMAGES = [middle_is_gone, last_are_gone, all_records_are_gone]


class OnlyCopyScene(FilesScene):
    def write(self, records: int) -> None:
        for _ in range(records):
            assert self.produce(-1) is ErrorCode.NONE

    def alone(self, before: int, after: int) -> SimBroker:
        """The one that is left in sync, which wrote on alone."""
        self.set_topic("min.insync.replicas", "1")
        self.write(before)
        self.let_pass(1)
        last = self.leader()
        for machine in self.followers():
            machine.stop()
            self.let_pass(20)
        self.write(after)
        self.let_pass(5)
        return last

    def all_come_back(self) -> None:
        for machine in self.machines:
            if not machine.running:
                machine.start()
                self.let_pass(4)
        self.until_whole()

    def files_of(self, machine: SimBroker) -> dict[str, bytes]:
        directory = machine.data / "topics" / TOPIC / "Partition-0"
        return {name: machine.files.read(directory / name) for name in machine.files.list_dir(directory)}


@pytest.fixture
def scene() -> Iterator[OnlyCopyScene]:
    with SimLoop(2) as loop:
        scene = OnlyCopyScene(loop, synced=True)
        scene.begin_with_small_segments()
        yield scene


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_deleted_meanwhile_stays_deleted(scene: OnlyCopyScene, damage: Damage) -> None:
    last = scene.alone(8, 0)
    assert delete(scene, 2) == (ErrorCode.NONE, 2)
    scene.let_pass(5)
    last.stop()
    damage(last)
    last.start()
    scene.let_pass(4)
    scene.all_come_back()
    assert scene.kept(scene.leader())[0] >= 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_offset_is_given_to_another_record(scene: OnlyCopyScene, damage: Damage) -> None:
    last = scene.alone(4, 4)
    last.stop()
    damage(last)
    last.start()
    scene.let_pass(4)
    scene.all_come_back()
    scene.write(1)
    assert scene.kept(scene.leader())[1][-1] >= 8


@pytest.mark.parametrize("with_point", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_files_that_are_put_back_as_advised_are_there_again(
    scene: OnlyCopyScene, damage: Damage, *, with_point: bool
) -> None:
    last = scene.alone(4, 4)
    last.stop()
    kept = scene.files_of(last)
    damage(last)
    gone = set(kept) - set(scene.files_of(last))
    last.start()
    scene.let_pass(8)
    last.stop()
    directory = last.data / "topics" / TOPIC / "Partition-0"
    for name, data in kept.items():
        if with_point or name in gone:
            last.files.write_atomically(directory / name, data)
    last.files.sync_dir(directory)
    last.start()
    scene.let_pass(4)
    scene.all_come_back()
    assert scene.kept(scene.leader())[1][:8] == list(range(8))


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_leads_although_another_never_comes_back(scene: OnlyCopyScene, damage: Damage) -> None:
    last = scene.alone(4, 4)
    others = [machine for machine in scene.machines if machine is not last]
    last.stop()
    damage(last)
    last.start()
    scene.let_pass(4)
    others[0].start()
    scene.let_pass(120)
    assert scene._state(0).leader != -1


def test_whole_replicas_keep_what_it_lost_of_another_epoch(scene: OnlyCopyScene) -> None:
    """It knows the epochs of what it lost: else they would part from it where those began."""
    scene.set_topic("min.insync.replicas", "1")
    scene.write(4)
    first = scene.leader()
    first.stop()
    scene.let_pass(20)
    first.start()
    scene.let_pass(5)
    scene.until_whole()
    scene.write(4)  # under another leader
    scene.let_pass(1)
    whole = []
    for _ in range(2):
        whole.append(scene.leader())
        whole[-1].stop()
        scene.let_pass(20)
    last = scene.leader()  # in a later epoch
    last.stop()
    take(last, slice(4, None))
    last.start()
    scene.let_pass(8)
    scene.all_come_back()
    assert all(set(range(8)) <= set(scene.kept(machine)[1]) for machine in whole)


def test_what_retention_took_before_an_upgrade_is_no_loss(scene: OnlyCopyScene) -> None:
    """0.1.0 did not write down where a log starts before its next checkpoint, and was killed; one replica is away."""
    scene.write(RECORDS)
    scene.let_pass(1)
    away = scene.followers()[0]
    away.stop()
    scene.let_pass(20)
    others = [machine for machine in scene.machines if machine is not away]
    for machine in others:
        machine.stop()
        names_no_segments(machine)
        take(machine, slice(1))
        machine.files.unlink(machine.data / "clean-shutdown")
    for machine in others:
        machine.start()
    scene.let_pass(120)
    assert scene._state(0).leader != -1
