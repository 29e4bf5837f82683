"""The target's retention takes everything that was moved; a replica built anew still knows how far the relay is."""

from contextlib import AbstractContextManager, nullcontext

import pytest
from tests.sim.cluster_retiring import INTO, RETIRED, RetiringStory
from tests.sim.messages import PRODUCERS, TOPIC

from penstock.core.error_codes import ErrorCode
from penstock.records.relay import RelayPlace, retired_source
from penstock.replication.partition import Partition
from penstock.services import delete_records as deletions
from penstock.storage.producers import ProducerState
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_records

RETENTION = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}


def until_whole(story: RetiringStory) -> None:
    for _ in range(300):
        if story._is_whole():
            return
        story.let_pass(0.1)
    raise AssertionError(f"not in sync: {list(story.states())}")


def delete_all(story: RetiringStory, leader: SimBroker) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=INTO, offset=-1)
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
    asking = SimClient(leader.name, PORT).call(ApiKey.DELETE_RECORDS, request)
    answer = story.loop.run_until_complete(story.loop.spawn("admin", asking))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def wipe(story: RetiringStory, machine: SimBroker) -> None:
    machine.kill()
    machine.files = MemFiles(1, cold_chance=0.05)
    story.let_pass(2 * SESSION_SECONDS)  # its place is another data directory's until then
    machine.start()
    story.let_pass(1.5)
    until_whole(story)


def leading(story: RetiringStory, index: int) -> Partition:
    leader = story.leader(index)
    assert leader is not None
    partition = story.replica(leader, index)
    assert partition is not None
    return partition


def place_of(partition: Partition) -> RelayPlace | None:
    word = partition.log.producers.relays.get(retired_source(RETIRED))
    return None if word is None else word.place


@pytest.mark.parametrize("careless", [False, True], ids=["said again", "forgotten"])
def test_a_replica_built_anew_knows_how_far_the_relay_is(
    careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if careless:  # without the word in the log, everything comes a second time: this test sees it
        monkeypatch.setattr(deletions, "oldest_position", lambda topic, partition: None)
        monkeypatch.setattr(ProducerState, "copy_below", lambda *given: ([], -1))
    with SimLoop(3) as loop:
        story = RetiringStory(loop, synced=False)
        story.begin()
        story.begin_to_retire()
        story.let_pass(3)
        for number in range(PRODUCERS):
            loop.crash(f"producer-{number}")
        story.until_moved()
        assert story.moved_count() > 0
        place = place_of(leading(story, INTO))
        leader = story.leader(INTO)
        assert leader is not None
        delete_all(story, leader)
        end = leading(story, INTO).log.end_offset
        for machine in story.machines:
            if machine is not leader:
                wipe(story, machine)
        leader.kill()
        story.let_pass(2)
        assert story.leader(INTO) is not leader
        source = story.leader(RETIRED)
        assert source is not None
        expected: AbstractContextManager[object] = (
            pytest.raises((AssertionError, KeyError)) if careless else nullcontext()
        )
        with expected:
            assert place_of(leading(story, INTO)) == place
            leader.start()
            source.kill()
            source.start()
            until_whole(story)
            story.until_moved()
            assert leading(story, INTO).log.end_offset == end


def let_lead(story: RetiringStory, machine: SimBroker) -> None:
    for _ in range(6):
        leader = story.leader(INTO)
        if leader is machine:
            return
        assert leader is not None
        leader.kill()
        story.let_pass(2)
        leader.start()
        until_whole(story)
    raise AssertionError(f"{machine.name} is never elected")


def test_a_word_stays_until_it_was_said_again_and_that_is_committed() -> None:
    """The leader says it again and is cut off: that is lost with its fail-over, so the one before it must be there."""
    with SimLoop(3) as loop:
        story = RetiringStory(loop, RETENTION, synced=False)
        story.begin()
        story.begin_to_retire()
        story.let_pass(3)
        for number in range(PRODUCERS):
            loop.crash(f"producer-{number}")
        story.until_moved()
        place, alone = place_of(leading(story, INTO)), story.leader(INTO)
        assert place is not None
        assert alone is not None
        end = leading(story, INTO).log.end_offset
        others = [machine for machine in story.machines if machine is not alone]
        for other in others:
            loop.network.stall(alone.name, other.name)
        story.configure({"retention.ms": "1"})
        said = leading(story, INTO).log
        loop.run_until(lambda: said.end_offset > end)
        story.let_pass(1)
        story.configure({"retention.ms": "-1"})
        story.let_pass(1)
        alone.kill()
        loop.run_until(lambda: story.leader(INTO) not in (None, alone))
        story.let_pass(1)  # nobody waits for its answers any more
        loop.network.heal_all()
        alone.start()
        until_whole(story)
        let_lead(story, alone)
        for other in others:
            wipe(story, other)
        let_lead(story, alone)
        alone.kill()
        story.let_pass(2)
        assert story.leader(INTO) is not alone
        assert place_of(leading(story, INTO)) == place
