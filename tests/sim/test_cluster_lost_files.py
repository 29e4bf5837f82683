"""Files go behind the back of a broker that is stopped: what is made in their place is led by nobody who has more."""

from collections.abc import Callable, Iterator

import pytest
from tests.sim.cluster_story import BROKERS, replica_of
from tests.sim.messages import TOPIC, create_request
from tests.sim.test_cluster_scenes import Scene
from tests.unit.storage.logs import read_everything

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.layout import (
    INCOMPLETE_FILE,
    LOG,
    PARTITION_FILE,
    RECOVERY_POINT_FILE,
    segment_name,
)
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

RECORDS = 4


class FilesScene(Scene):
    def begin_with_small_segments(self) -> None:
        """One record in each."""
        self.begin()
        self.set_topic("internal.segment.bytes", "100")

    def stop_one_by_one(self) -> SimBroker:
        """The last one to stop is alone in sync; the others have everything, too, and nobody knows."""
        self.set_topic("min.insync.replicas", "1")
        for _ in range(RECORDS):
            assert self.produce(-1) is ErrorCode.NONE
        self.let_pass(1)
        return self.stop_one_by_one_as_it_is()

    def stop_one_by_one_as_it_is(self) -> SimBroker:
        last = self.leader()
        for machine in self.followers():
            machine.stop()
            self.let_pass(20)
        assert len(self._state(0).isr) == 1
        assert not self._state(0).suspects
        last.stop()
        return last

    def kept(self, machine: SimBroker) -> tuple[int, list[int]]:
        """Where its log starts, and the offsets that it has."""
        log = replica_of(machine, 0).log
        return log.start_offset, [batch.base_offset for batch in read_everything(log)]

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
    recovery_point_is_gone(machine)


def recovery_point_is_gone(machine: SimBroker) -> None:
    machine.files.unlink(machine.data / "topics" / TOPIC / "Partition-0" / RECOVERY_POINT_FILE)


def recovery_point_and_front_are_gone(machine: SimBroker) -> None:
    """Its end is as far as the others'."""
    front_is_gone(machine)
    recovery_point_is_gone(machine)


def recovery_point_and_middle_are_gone(machine: SimBroker) -> None:
    middle_is_gone(machine)
    recovery_point_is_gone(machine)


def end_is_gone(machine: SimBroker) -> None:
    path = machine.data / "topics" / TOPIC / "Partition-0" / segment_name(0, ".log")
    file = machine.files.open(path)
    file.truncate(file.size() // RECORDS)
    file.close()


def take(machine: SimBroker, part: slice) -> None:
    directory = machine.data / "topics" / TOPIC / "Partition-0"
    logs = [name for name in machine.files.list_dir(directory) if name.endswith(LOG)]
    for name in logs[part]:
        machine.files.unlink(directory / name)


def front_is_gone(machine: SimBroker) -> None:
    take(machine, slice(1))


def middle_is_gone(machine: SimBroker) -> None:
    take(machine, slice(1, 2))


def last_are_gone(machine: SimBroker) -> None:
    take(machine, slice(-2, None))


def all_records_are_gone(machine: SimBroker) -> None:
    take(machine, slice(None))


def names_no_segments(machine: SimBroker) -> None:
    """As 0.1.0 wrote its recovery points."""
    path = machine.data / "topics" / TOPIC / "Partition-0" / RECOVERY_POINT_FILE
    point = RecoveryPoint.parse(machine.files.read(path))
    machine.files.write_atomically(path, point._replace(sealed=None).dump())


def middle_of_an_old_log_is_gone(machine: SimBroker) -> None:
    names_no_segments(machine)
    middle_is_gone(machine)


def is_marked(machine: SimBroker) -> bool:
    return machine.files.exists(machine.data / "topics" / TOPIC / "Partition-0" / INCOMPLETE_FILE)


OLD = [middle_of_an_old_log_is_gone]
HOLES = [front_is_gone, middle_is_gone, all_records_are_gone]
# After which word to the coordination store a start ends: before, while and after its broker registers.
CALLS = range(4, 9)
DAMAGES = [
    directory_is_gone,
    owner_is_damaged,
    all_but_the_owner_is_gone,
    recovery_point_and_end_are_gone,
    recovery_point_and_front_are_gone,
    recovery_point_and_middle_are_gone,
]


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


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("damage", [directory_is_gone, end_is_gone])
def test_nor_does_it_after_a_start_that_came_to_nothing(
    scene: FilesScene, damage: Callable[[SimBroker], None], calls: int
) -> None:
    """The next one finds a log with a recovery point of its own."""
    last = scene.stop_all()
    damage(last)
    last.store_fault = (calls, Fault.REQUEST_LOST)
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


@pytest.fixture
def rows() -> Iterator[FilesScene]:
    """Logs of several segments."""
    with SimLoop(2) as loop:
        scene = FilesScene(loop, synced=True)
        scene.begin_with_small_segments()
        yield scene


@pytest.mark.parametrize("damage", [*HOLES, *OLD, *DAMAGES])
def test_a_log_with_a_hole_gets_what_it_lacks_from_the_others_before_it_leads(
    rows: FilesScene, damage: Callable[[SimBroker], None]
) -> None:
    for _ in range(RECORDS):
        assert rows.produce(-1) is ErrorCode.NONE
    rows.let_pass(1)
    victim, others = rows.leader(), rows.followers()
    victim.stop()
    damage(victim)
    victim.start()
    rows.until_whole()
    for machine in others:
        machine.stop()
        rows.let_pass(1)
        machine.start()
        rows.until_whole()
    assert rows.leader() is victim
    for machine in rows.machines:
        assert rows.kept(machine) == (0, list(range(RECORDS)))
        assert not is_marked(machine)


@pytest.mark.parametrize("damage", [*HOLES, last_are_gone, *DAMAGES])
def test_led_by_the_last_one_in_sync_whole_replicas_lose_nothing_that_it_has_lost(
    rows: FilesScene, damage: Callable[[SimBroker], None]
) -> None:
    last = rows.stop_one_by_one()
    damage(last)
    last.start()
    rows.let_pass(8)
    others = [machine for machine in rows.machines if machine is not last]
    for machine in others:
        machine.start()
    rows.until_whole()
    assert rows.produce(-1) is ErrorCode.NONE  # its offset is new
    rows.until_whole()
    rows.let_pass(2)
    for machine in others:
        start, offsets = rows.kept(machine)
        assert (start, offsets[:RECORDS]) == (0, list(range(RECORDS)))
        assert len(offsets) > RECORDS
        assert offsets == list(range(len(offsets))), "one may close the gap at the end"


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_nor_where_its_first_start_came_to_nothing(
    rows: FilesScene, damage: Callable[[SimBroker], None], calls: int
) -> None:
    """As above, where it alone was in sync."""
    last = rows.stop_one_by_one()
    damage(last)
    last.store_fault = (calls, Fault.REQUEST_LOST)
    last.start()
    rows.let_pass(8)
    others = [machine for machine in rows.machines if machine is not last]
    for machine in others:
        machine.start()
    rows.until_whole()
    for machine in others:
        assert rows.kept(machine)[1][:RECORDS] == list(range(RECORDS))


@pytest.mark.parametrize("seconds", [0, 8])
def test_nor_where_all_that_were_in_sync_lost_everything(rows: FilesScene, seconds: int) -> None:
    """The second of them is back so much later."""
    rows.set_topic("min.insync.replicas", "1")
    for _ in range(RECORDS):
        assert rows.produce(-1) is ErrorCode.NONE
    rows.let_pass(1)
    whole = rows.followers()[0]
    whole.stop()
    rows.let_pass(20)
    others = [machine for machine in rows.machines if machine is not whole]
    assert len(rows._state(0).isr) == 2
    for machine in others:
        machine.kill()
        directory_is_gone(machine)
    for machine in others:
        machine.start()
        rows.let_pass(seconds)
    whole.start()
    rows.until_whole()
    assert rows.kept(whole)[1] == list(range(RECORDS))


def test_what_nobody_else_has_holds_up_no_other_partition(rows: FilesScene) -> None:
    """A topic was made while the others were away, and its broker was killed before it had a log."""
    last = rows.stop_one_by_one()
    last.start()
    rows.loop.run_until(lambda: last.ready)
    request = create_request({}, replicas=1)
    request.topics[0].name = "another"
    rows.do(SimClient(last.name, PORT).call(ApiKey.CREATE_TOPICS, request))
    last.kill()
    last.files.remove_tree(last.data / "topics" / "another")
    last.start()
    rows.let_pass(8)
    assert rows.leader() is last
    assert rows.produce(-1) is ErrorCode.NONE


@pytest.mark.parametrize("damage", DAMAGES[1:])
def test_nor_where_it_could_not_be_read_before_it_was_told(
    rows: FilesScene, damage: Callable[[SimBroker], None]
) -> None:
    """Nobody would have been asked what they have: it is, after the next start."""
    last = rows.stop_one_by_one()
    damage(last)
    last.files.fail_next("read", f"*{TOPIC}/Partition-0/{PARTITION_FILE}")
    last.start()
    rows.let_pass(9)
    others = [machine for machine in rows.machines if machine is not last]
    for machine in others:
        machine.start()
    rows.let_pass(9)
    last.stop()
    last.start()
    rows.until_whole()
    for machine in rows.machines:
        assert rows.kept(machine)[1] == list(range(RECORDS))
