"""Files go behind the back of a broker that is stopped: what is made in their place is led by nobody who has more."""

from collections.abc import Callable, Iterator

import pytest
from tests.sim.cluster_story import BROKERS, replica_of
from tests.sim.messages import TOPIC, create_request
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.storage.layout import PARTITION_FILE, RECOVERY_POINT_FILE, segment_name
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

RECORDS = 4


class FilesScene(Scene):
    def stop_all(self) -> SimBroker:
        """The last one to stop has everything, and so has another one."""
        for _ in range(RECORDS):
            assert self.produce(-1) is ErrorCode.NONE
        self.let_pass(1)
        last, others = self.leader(), self.followers()
        for machine in (*others, last):
            machine.stop()
        return last

    def check_nothing_is_lost(self, first: SimBroker) -> None:
        """When it was the first one to come back."""
        first.start()
        self.let_pass(7)
        for machine in self.machines:
            if machine is not first:
                machine.start()
        self.until_whole()
        assert {replica_of(machine, 0).log.end_offset for machine in self.machines} == {RECORDS}


@pytest.fixture
def scene() -> Iterator[FilesScene]:
    with SimLoop(2) as loop:
        scene = FilesScene(loop, synced=True)
        scene.begin()
        yield scene


def directory_is_gone(machine: SimBroker) -> None:
    machine.files.remove_tree(machine.data / "topics" / TOPIC / "Partition-0")


def owner_is_damaged(machine: SimBroker) -> None:
    machine.files.write_atomically(machine.data / "topics" / TOPIC / "Partition-0" / PARTITION_FILE, b"")


def all_but_the_owner_is_gone(machine: SimBroker) -> None:
    directory = machine.data / "topics" / TOPIC / "Partition-0"
    for name in machine.files.list_dir(directory):
        if name != PARTITION_FILE:
            machine.files.unlink(directory / name)


def recovery_point_and_end_are_gone(machine: SimBroker) -> None:
    end_is_gone(machine)
    machine.files.unlink(machine.data / "topics" / TOPIC / "Partition-0" / RECOVERY_POINT_FILE)


def end_is_gone(machine: SimBroker) -> None:
    path = machine.data / "topics" / TOPIC / "Partition-0" / segment_name(0, ".log")
    file = machine.files.open(path)
    file.truncate(file.size() // RECORDS)
    file.close()


DAMAGES = [directory_is_gone, owner_is_damaged, all_but_the_owner_is_gone, recovery_point_and_end_are_gone]


@pytest.mark.parametrize("damage", [*DAMAGES, end_is_gone])
def test_a_log_that_nothing_vouches_for_leads_nobody_who_has_more(
    scene: FilesScene, damage: Callable[[SimBroker], None]
) -> None:
    last = scene.stop_all()
    damage(last)
    scene.check_nothing_is_lost(last)


def test_nor_does_one_that_cannot_be_opened_at_once(scene: FilesScene) -> None:
    last = scene.stop_all()
    end_is_gone(last)
    last.files.fail_next("open", f"*{TOPIC}/Partition-0/*.log")
    scene.check_nothing_is_lost(last)


@pytest.mark.parametrize("damage", [*DAMAGES, end_is_gone])
def test_nor_does_it_after_a_start_that_came_to_nothing(
    scene: FilesScene, damage: Callable[[SimBroker], None]
) -> None:
    """The next one finds a log with a recovery point of its own."""
    last = scene.stop_all()
    damage(last)
    last.store_fault = (4, Fault.REQUEST_LOST)
    scene.check_nothing_is_lost(last)


def test_nor_does_it_where_many_partitions_are_made_at_once() -> None:
    with SimLoop(2) as loop:
        scene = FilesScene(loop, synced=True)
        for machine in scene.machines:
            machine.start()
        loop.run_until(lambda: all(machine.ready for machine in scene.machines))
        request = create_request({"min.insync.replicas": "2"}, replicas=BROKERS)
        request.topics[0].num_partitions = 9
        scene.do(SimClient(scene.machines[0].name, PORT).call(ApiKey.CREATE_TOPICS, request))
        scene.until_whole()
        last = scene.stop_all()
        last.files.remove_tree(last.data / "topics" / TOPIC)
        scene.check_nothing_is_lost(last)


def test_a_log_that_was_not_open_when_its_broker_stopped_is_looked_at_as_after_a_crash(
    scene: FilesScene,
) -> None:
    last = scene.stop_all()
    last.start()
    scene.loop.run_until(lambda: last.ready)
    last.kill()
    last.files.fail_next("open", f"*{TOPIC}/Partition-0/*.log", count=1 << 30)
    last.start()
    scene.loop.run_until(lambda: last.ready)
    last.stop()
    last.files.mend()
    assert not last.files.exists(last.data / "clean-shutdown")
