"""What comes after an only copy lost files and leads: retention, a fail-over, a missing epoch file. Whole replicas,
which stopped before it, lose nothing by that either, and what an election gave up stays so.
"""

from collections.abc import Callable, Iterator

import pytest
from tests.sim.messages import TOPIC, produce_request
from tests.sim.test_cluster_lost_files import (
    all_records_are_gone,
    recovery_point_is_gone,
    take,
)
from tests.sim.test_cluster_only_copy import OnlyCopyScene

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.reader import Record
from penstock.storage.layout import EPOCHS_FILE
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

OFTEN = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "0"}
WEEK_MS = 7 * 24 * 3600 * 1000
Damage = Callable[[SimBroker], None]


class AfterScene(OnlyCopyScene):
    """Its records are of the time at which they are written."""

    def write(self, records: int) -> None:
        for _ in range(records):
            record = Record(offset=0, timestamp=self.leader().clock.now_ms(), key=None, value=b"x")
            request = produce_request(0, bytes(build_batch([record])), acks=-1, timeout_ms=500)
            answer = self.do(SimClient(self.leader().name, PORT).call(ApiKey.PRODUCE, request))
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def others(self, machine: SimBroker) -> list[SimBroker]:
        return [other for other in self.machines if other is not machine]


@pytest.fixture
def scene() -> Iterator[AfterScene]:
    with SimLoop(2) as loop:
        scene = AfterScene(loop, synced=True, settings=OFTEN)
        scene.begin_with_small_segments()
        yield scene


def all_but_two_are_gone(machine: SimBroker) -> None:
    take(machine, slice(2, None))


@pytest.mark.parametrize("is_busy", [True, False])
@pytest.mark.parametrize("damage", [all_records_are_gone, all_but_two_are_gone])
def test_retention_takes_no_gap_for_old(scene: AfterScene, damage: Damage, is_busy: bool) -> None:
    """A control record of 1970 closed it, and was old at once; or the start went from before it to behind it."""
    scene.set_topic("retention.ms", str(WEEK_MS))
    last = scene.alone(8, 0)
    last.stop()
    damage(last)
    last.start()
    scene.let_pass(8)
    scene.write(3 if is_busy else 0)
    scene.all_come_back()
    scene.let_pass(60)
    assert all(scene.kept(machine)[1][:8] == list(range(8)) for machine in scene.others(last))


@pytest.mark.parametrize("gone", [slice(2, None), slice(2, 5)])
def test_what_lies_before_a_gap_takes_the_start_to_it_and_not_beyond(scene: AfterScene, gone: slice) -> None:
    """Two records are due after 200 s; those in the gap are 80 s old by then."""
    scene.set_topic("retention.ms", "200000")
    scene.write(2)
    scene.let_pass(120)
    last = scene.alone(6, 0)
    last.stop()
    take(last, gone)
    last.start()
    scene.let_pass(8)
    scene.write(2)
    scene.all_come_back()
    scene.let_pass(60)
    for machine in scene.others(last):
        start, offsets = scene.kept(machine)
        assert start == 2
        assert set(range(2, 8)) <= set(offsets)
    scene.let_pass(200)
    assert all(scene.kept(machine)[0] >= 8 for machine in scene.machines), "it goes with what lies behind it"


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_gap_of_lost_files_counts_for_no_compaction(scene: AfterScene, fails_over: bool) -> None:
    """Whoever crossed it, and leads next, sent a whole replica to begin anew, as if that had missed tombstones."""
    scene.set_topic("min.insync.replicas", "1")
    scene.write(4)
    scene.let_pass(1)
    robbed, (first, second) = scene.leader(), scene.followers()
    first.stop()
    scene.let_pass(20)
    scene.write(4)
    scene.let_pass(1)
    second.stop()
    scene.let_pass(20)
    scene.write(4)
    scene.let_pass(5)
    robbed.stop()
    take(robbed, slice(2, None))
    robbed.start()
    scene.let_pass(8)
    first.start()
    scene.let_pass(10)
    if fails_over:
        robbed.stop()
        scene.let_pass(20)
        assert scene.leader() is first
    second.start()
    scene.let_pass(20)
    assert set(range(8)) <= set(scene.kept(second)[1])


@pytest.mark.parametrize("after", [0, 4])
def test_the_start_that_was_written_down_counts_also_without_a_recovery_point(
    scene: AfterScene, after: int
) -> None:
    last = scene.alone(8, after)
    last.stop()
    take(last, slice(4))
    recovery_point_is_gone(last)
    last.start()
    scene.let_pass(8)
    scene.all_come_back()
    assert all(scene.kept(machine)[1][:8] == list(range(8)) for machine in scene.others(last))


@pytest.mark.parametrize("epochs_are_gone", [False, True])
def test_what_an_election_gave_up_stays_so(scene: AfterScene, epochs_are_gone: bool) -> None:
    """Without its epochs it would take all of another log, up to its end, for its own: all are asked what they have."""
    scene.set_topic("min.insync.replicas", "1")
    scene.write(4)
    scene.let_pass(1)
    old = scene.leader()
    for machine in scene.followers():
        scene.loop.network.stall(old.name, machine.name)
    for _ in range(3):
        scene.produce(1, at=old)
    old.kill()
    scene.loop.network.heal_all()
    scene.let_pass(SESSION_SECONDS + 5)
    last = scene.leader()
    (other,) = (machine for machine in scene.others(last) if machine is not old)
    other.stop()
    scene.let_pass(20)
    scene.write(6)
    scene.let_pass(5)
    last.stop()
    take(last, slice(None))
    if epochs_are_gone:
        last.files.unlink(last.data / "topics" / TOPIC / "Partition-0" / EPOCHS_FILE)
    last.start()
    scene.let_pass(8)
    old.start()
    scene.let_pass(20)
    other.start()
    scene.until_whole()
    if epochs_are_gone:
        assert scene.kept(last) == scene.kept(old) == scene.kept(other)
    else:
        assert not {5, 6} & {*scene.kept(old)[1], *scene.kept(other)[1]}
