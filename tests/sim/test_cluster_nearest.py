"""Consumers that read from the replica in their rack: what they are told, scene by scene, and seeded stories.

The stories are those of `test_cluster`, with three more readers: whatever happens, no offset ever shows two values,
nobody skips or goes back, and what was shown by a follower is there in the end.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.cluster_near import NEAREST, NearStory, give_racks, rack_of
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.messages import TOPIC, fetch_request
from tests.sim.near_planted import PLANTED
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import list_offsets, offset_for_leader_epoch

SEEDS = int(os.environ.get("PENSTOCK_SIM_NEAR_SEEDS", "15"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> NearStory:
    with SimLoop(seed) as loop:
        story = NearStory(loop)
        story.tell()
        return story


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_followers_show_is_never_taken_back(seed: int) -> None:
    run_story(seed)


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(100))


class NearScene(Scene):
    def __init__(self, loop: SimLoop, settings: dict[str, str]) -> None:
        super().__init__(loop, settings)
        give_racks(self)

    def begin(self) -> None:
        super().begin()
        self.loop.run_until(lambda: all(TOPIC.encode() in self.topics(machine) for machine in self.machines))
        for _ in range(3):
            assert self.produce(-1) is ErrorCode.NONE
        self.loop.run_until(
            lambda: all(self.partition(machine).high_watermark == 3 for machine in self.machines)
        )

    def topics(self, machine: SimBroker) -> Any:
        return machine.broker.table.by_name if machine.broker is not None else {}

    def partition(self, machine: SimBroker) -> Partition:
        found: Partition = self.topics(machine)[TOPIC.encode()].partitions[0]
        return found

    def number(self, machine: SimBroker) -> int:
        return self.machines.index(machine) + 1

    def rack(self, machine: SimBroker) -> str:
        return rack_of(self.number(machine))

    def fetch(self, at: SimBroker, offset: int, version: int = 12, **more: Any) -> Any:
        request = fetch_request(0, offset, **more)
        answer = self.do(SimClient(at.name, PORT).call(ApiKey.FETCH, request, version))
        return answer.responses[0].partitions[0]

    def told(self, at: SimBroker, offset: int, **more: Any) -> ErrorCode:
        return ErrorCode(self.fetch(at, offset, **more).error_code)

    def told_end_of(self, at: SimBroker, epoch: int, current: int) -> ErrorCode:
        partition = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        answer = self.do(SimClient(at.name, PORT).call(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, 4))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def told_end(self, at: SimBroker, epoch: int = -1) -> ErrorCode:
        """To who asks for the end of the partition."""
        partition = list_offsets.ListOffsetsPartition(
            partition_index=0, timestamp=-1, current_leader_epoch=epoch
        )
        request = list_offsets.ListOffsetsRequest(
            topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
        )
        answer = self.do(SimClient(at.name, PORT).call(ApiKey.LIST_OFFSETS, request, 7))
        return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def scene() -> Iterator[NearScene]:
    with SimLoop(1) as loop:
        scene = NearScene(loop, NEAREST)
        scene.begin()
        yield scene


def test_a_consumer_is_sent_to_the_replica_in_its_rack(scene: NearScene) -> None:
    leader, (near, far) = scene.leader(), scene.followers()
    for broker in (near, far):
        answer = scene.fetch(leader, 0, rack=scene.rack(broker))
        assert (answer.preferred_read_replica, answer.high_watermark) == (scene.number(broker), 3)
        assert not answer.records
        assert scene.fetch(broker, 0, rack=scene.rack(broker)).records
    for rack in ("", "elsewhere", scene.rack(leader)):
        answer = scene.fetch(leader, 0, rack=rack)
        assert answer.preferred_read_replica == -1
        assert answer.records
    # Nobody but the leader sends anybody anywhere.
    assert scene.fetch(near, 0, rack=scene.rack(far)).preferred_read_replica == -1


def test_without_a_selector_the_leader_serves_whoever_comes() -> None:
    with SimLoop(1) as loop:
        scene = NearScene(loop, {})
        scene.begin()
        answer = scene.fetch(scene.leader(), 0, rack=scene.rack(scene.followers()[0]))
        assert answer.preferred_read_replica == -1
        assert answer.records


def test_a_reader_at_a_followers_end_waits_until_its_high_watermark_moves(scene: NearScene) -> None:
    follower = scene.followers()[0]
    request = fetch_request(0, 3, max_wait_ms=60_000)
    client = SimClient(follower.name, PORT, timeout_s=120)
    waiting = scene.loop.spawn("reader", client.call(ApiKey.FETCH, request))
    scene.let_pass(1)
    assert not waiting.done()
    assert scene.produce(-1) is ErrorCode.NONE
    began = scene.loop.time()
    answer = scene.loop.run_until_complete(waiting).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark) == (0, 4)
    assert answer.records
    # Long before the follower's next long poll would have ended.
    assert scene.loop.time() - began < 0.1


def test_a_follower_shows_only_what_is_committed(scene: NearScene) -> None:
    """One replica is slow, and still counts: what the other has already is nobody's to see."""
    leader, (near, slow) = scene.leader(), scene.followers()
    scene.loop.network.stall(leader.name, slow.name)
    assert scene.produce(1) is ErrorCode.NONE
    scene.loop.run_until(lambda: scene.partition(near).log.end_offset == 4)
    assert len(scene._state(0).isr) == 3
    answer = scene.fetch(near, 3, max_wait_ms=50)
    assert (answer.error_code, answer.high_watermark) == (0, 3)
    assert not answer.records
    # Read from elsewhere, it would be no error to come here with it.
    answer = scene.fetch(near, 4, max_wait_ms=50)
    assert (answer.error_code, answer.high_watermark) == (0, 3)
    scene.loop.network.heal_all()
    scene.loop.run_until(lambda: scene.partition(near).high_watermark == 4)
    assert scene.fetch(near, 3).records


def test_beyond_its_end_a_follower_sends_on_and_a_leader_refuses(scene: NearScene) -> None:
    assert scene.told(scene.followers()[0], 4) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.told(scene.leader(), 4) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_whose_log_begins_later_sends_on_to_the_leader(scene: NearScene) -> None:
    follower = scene.followers()[0]
    scene.partition(follower).log.advance_start(2)
    assert scene.told(follower, 1) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.told(follower, 2) is ErrorCode.NONE
    scene.let_pass(0.5)  # the leader hears of it
    rack = scene.rack(follower)
    assert scene.fetch(scene.leader(), 1, rack=rack).preferred_read_replica == -1
    assert scene.fetch(scene.leader(), 2, rack=rack).preferred_read_replica == scene.number(follower)


def test_only_fetches_that_know_of_followers_are_served_by_them(scene: NearScene) -> None:
    follower = scene.followers()[0]
    assert scene.told(follower, 0, version=10) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.told(follower, 0, version=11) is ErrorCode.NONE
    assert scene.told_end(follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_fences_epochs_as_a_leader_does(scene: NearScene) -> None:
    before = scene.leader()
    before.stop()
    before.start()
    scene.until_whole()
    epoch = scene._state(0).leader_epoch
    assert epoch > 0
    follower = next(broker for broker in scene.followers() if broker is not before)
    scene.loop.run_until(lambda: scene.partition(follower).is_following)
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    assert scene.told(follower, 0, epoch=epoch) is ErrorCode.NONE
    assert scene.told(follower, 0, epoch=epoch - 1) is fenced
    assert scene.told(follower, 0, epoch=epoch + 1) is unknown
    # Who can only be served by a leader hears of his epoch first, too.
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for told, asked in ((elsewhere, epoch), (fenced, epoch - 1), (unknown, epoch + 1)):
        assert scene.told(follower, 0, epoch=asked, version=10) is told
        assert scene.told_end(follower, asked) is told


def test_a_follower_out_of_sync_gives_what_it_has_and_then_sends_on(scene: NearScene) -> None:
    leader, (lagging, _) = scene.leader(), scene.followers()
    scene.loop.network.stall(leader.name, lagging.name)
    assert scene.produce(-1, timeout_ms=10_000) is ErrorCode.NONE  # once the lagging one is out
    scene.loop.run_until(lambda: not scene.partition(lagging).in_sync)
    assert scene.told(lagging, 0) is ErrorCode.NONE
    assert scene.told(lagging, 3) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert scene.fetch(leader, 3, rack=scene.rack(lagging)).preferred_read_replica == -1
    scene.loop.network.heal_all()
    scene.until_whole()
    answer = scene.fetch(leader, 3, rack=scene.rack(lagging))
    assert answer.preferred_read_replica == scene.number(lagging)


def test_a_leader_that_was_replaced_and_does_not_know_it_costs_no_reader_its_place(scene: NearScene) -> None:
    """What its successor committed lies beyond its log; whoever asks for that is told to look again."""
    before = scene.leader()
    before.cut_off()
    scene.loop.run_until(lambda: scene.leader() is not before and scene.leader().ready)
    scene.loop.run_until(lambda: scene.partition(scene.leader()).is_leader)
    assert scene.produce(-1, timeout_ms=10_000) is ErrorCode.NONE
    end, epoch = scene.partition(scene.leader()).high_watermark, scene._state(0).leader_epoch
    assert scene.partition(before).is_leader, "it has heard of it: the scene tells nothing"
    assert end > scene.partition(before).log.end_offset
    assert scene.told(before, end, epoch=epoch) is ErrorCode.UNKNOWN_LEADER_EPOCH
    # Nothing tells it without an epoch, or with the one that it told itself: it asks the store before it says that
    # there is no such place.
    assert scene.told(before, end) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.told(before, end, epoch=epoch - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for current in (-1, epoch - 1):
        assert scene.told_end_of(before, epoch, current) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.told_end_of(scene.leader(), epoch + 1, -1) is ErrorCode.NONE
    assert scene.told(scene.leader(), end + 1) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_that_slept_asks_before_it_says_that_there_is_no_such_place(scene: NearScene) -> None:
    before = scene.leader()
    before.pause()
    scene.loop.run_until(lambda: scene.leader() is not before and scene.leader().ready)
    scene.loop.run_until(lambda: scene.partition(scene.leader()).is_leader)
    assert scene.produce(-1, timeout_ms=10_000) is ErrorCode.NONE
    end = scene.partition(scene.leader()).high_watermark
    client = SimClient(before.name, PORT, timeout_s=120)
    asked = scene.loop.spawn("reader", client.call(ApiKey.FETCH, fetch_request(0, end)))
    scene.let_pass(0.5)
    before.resume()  # the request lies in its socket when it wakes up
    answer = scene.loop.run_until_complete(asked).responses[0].partitions[0]
    assert answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_that_waits_at_a_follower_is_sent_on_when_another_leads(scene: NearScene) -> None:
    follower = scene.followers()[0]
    epoch = scene._state(0).leader_epoch
    client = SimClient(follower.name, PORT, timeout_s=120)
    request = fetch_request(0, 3, max_wait_ms=60_000, epoch=epoch)
    waiting = scene.loop.spawn("reader", client.call(ApiKey.FETCH, request))
    scene.let_pass(0.5)
    assert not waiting.done()
    scene.leader().stop()
    answer = scene.loop.run_until_complete(waiting).responses[0].partitions[0]
    assert answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
