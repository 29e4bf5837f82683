"""Groups whose topic has fewer replicas in sync than `min.insync.replicas`, for a while.

Nothing can be committed then. Whoever asks their coordinator for anything is answered all the same, in time: what would
have to be stored is refused, and read is what is committed. When the others are back, it goes on.
"""

import os
from typing import Any

import pytest
from tests.sim.group_client import GroupClient
from tests.sim.group_faults import Plant
from tests.sim.group_members import GROUP, NETWORK_TROUBLE, Violation
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_groups import GroupStory
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.replication.partition import Partition
from penstock.services.coordinator.shard import Shard
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    delete_topics,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
)

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 15
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
COMMIT_SECONDS = 5.0  # offsets.commit.timeout.ms
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "30000",  # as it is by default: those that hang are in sync for long
}
# The same, behind a rebalance (of group_members), and what machines and networks take.
ANSWER_SECONDS = COMMIT_SECONDS + 3.0
AT_ONCE_SECONDS = 0.5
NONE = -1  # what is told of a partition for which nothing is committed


# -- a scene -------------------------------------------------------------------------------------------------


class ShortScene(Scene):
    """One group that has committed 5, and a coordinator that loses the others."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, SETTINGS)

    def begin(self) -> None:
        super().begin()
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
        for _ in range(50):
            found = self._ask(self.machines[0], ApiKey.FIND_COORDINATOR, request)[0].coordinators[0]
            if found.error_code == ErrorCode.NONE:
                break
            self.let_pass(0.2)
        self.coordinator = self.machines[found.node_id - 1]
        self.others = [machine for machine in self.machines if machine is not self.coordinator]
        self.let_pass(3)
        assert self.commit(5)[0] is ErrorCode.NONE
        self.let_pass(1)

    @property
    def partition(self) -> Partition:
        assert self.coordinator.broker is not None
        return self.coordinator.broker.table.by_name[OFFSETS_TOPIC.encode()].partitions[0]

    def lose_the_others(self) -> None:
        for machine in self.others:
            machine.kill()

    def until_short(self) -> None:
        self.let_pass(SESSION_SECONDS * 2)
        assert self.partition.leading is not None
        assert self.partition.leading.is_short

    def bring_back(self) -> None:
        for machine in self.others:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.let_pass(5)

    def _ask(self, machine: SimBroker, api: ApiKey, request: Any, version: int | None = None) -> Any:
        """The answer, and how long it took."""
        began = self.loop.time()
        answer = self.do(SimClient(machine.name, PORT, 60).call(api, request, version))
        return answer, self.loop.time() - began

    def commit(self, offset: int) -> tuple[ErrorCode, float]:
        place = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[place])
        request = offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])
        answer, seconds = self._ask(self.coordinator, ApiKey.OFFSET_COMMIT, request, 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code), seconds

    def committed(self) -> int:
        """Of a coordinator that answers at once."""
        topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic])
        request = offset_fetch.OffsetFetchRequest(groups=[wanted])
        answer, seconds = self._ask(self.coordinator, ApiKey.OFFSET_FETCH, request, 9)
        assert answer.groups[0].error_code == ErrorCode.NONE
        assert seconds < AT_ONCE_SECONDS
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def beat(self) -> ErrorCode:
        """A heartbeat of a group that is not known."""
        request = heartbeat.HeartbeatRequest(group_id="other", generation_id=1, member_id="m")
        answer, seconds = self._ask(self.coordinator, ApiKey.HEARTBEAT, request)
        assert seconds < AT_ONCE_SECONDS
        return ErrorCode(answer.error_code)

    def join(self) -> tuple[ErrorCode, float]:
        request = join_group.JoinGroupRequest(
            group_id="other",
            session_timeout_ms=1000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="any", metadata=b"")],
        )
        answer, seconds = self._ask(self.coordinator, ApiKey.JOIN_GROUP, request)
        return ErrorCode(answer.error_code), seconds

    def delete_topic(self) -> None:
        gone = delete_topics.DeleteTopicState(name=TOPIC)
        request = delete_topics.DeleteTopicsRequest(topics=[gone], timeout_ms=1000)
        self._ask(self.coordinator, ApiKey.DELETE_TOPICS, request, 6)
        self.let_pass(1)


@pytest.fixture(params=range(2))
def scene(request: pytest.FixtureRequest) -> Any:
    with SimLoop(request.param) as loop:
        scene = ShortScene(loop)
        scene.begin()
        yield scene


def test_while_too_few_are_in_sync_what_would_be_stored_is_refused_at_once_and_reads_go_on(
    scene: ShortScene,
) -> None:
    scene.lose_the_others()
    scene.until_short()
    end = scene.partition.log.end_offset
    for code, seconds in (scene.commit(6), scene.join()):
        assert (code, seconds < AT_ONCE_SECONDS) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
    assert scene.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.committed() == 5
    assert scene.partition.log.end_offset == end, "what is refused is nowhere"
    scene.bring_back()
    assert scene.commit(7)[0] is ErrorCode.NONE
    assert scene.committed() == 7


def test_while_too_few_are_in_sync_a_deleted_topic_takes_nobodys_answers_along(scene: ShortScene) -> None:
    scene.lose_the_others()
    scene.until_short()
    end = scene.partition.log.end_offset
    scene.delete_topic()
    assert scene.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.committed() == NONE
    assert scene.partition.log.end_offset == end
    scene.bring_back()
    assert scene.partition.high_watermark == scene.partition.log.end_offset > end, "given up by now"


def test_what_is_under_way_when_too_few_are_left_is_refused(scene: ShortScene) -> None:
    scene.lose_the_others()  # of which nobody knows yet
    code, seconds = scene.commit(6)
    assert code is ErrorCode.NOT_COORDINATOR
    assert seconds < COMMIT_SECONDS
    scene.until_short()
    code, seconds = scene.commit(6)
    assert (code, seconds < AT_ONCE_SECONDS) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)
    scene.bring_back()
    assert scene.committed() == 6, "it is in the log, and all have it"
    assert scene.commit(7)[0] is ErrorCode.NONE


def test_what_replicas_in_sync_do_not_take_is_refused_in_time(scene: ShortScene) -> None:
    for machine in scene.others:
        scene.loop.network.stall(scene.coordinator.name, machine.name)
    code, seconds = scene.commit(6)
    assert code is ErrorCode.NOT_COORDINATOR
    assert COMMIT_SECONDS <= seconds < COMMIT_SECONDS + AT_ONCE_SECONDS
    scene.let_pass(2)
    code, seconds = scene.commit(6)
    assert (code, seconds < AT_ONCE_SECONDS) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)
    scene.loop.network.heal_all()
    scene.let_pass(5)
    assert scene.committed() == 6, "it is in the log, and all have it"
    assert scene.commit(7)[0] is ErrorCode.NONE


# -- stories -------------------------------------------------------------------------------------------------


class PunctualClient(SimClient):
    def __init__(self, story: "ShortStory", host: str) -> None:
        super().__init__(host, PORT, ANSWER_SECONDS)
        self._story = story
        self._host = host

    async def call(self, api: int, request: Any, version: int | None = None) -> Any:
        try:
            answer = await super().call(api, request, version)
        except TimeoutError:
            if self._host == self._story.survivor:
                raise Violation(f"{ApiKey(api).name} was not answered in {ANSWER_SECONDS} s") from None
            raise
        self._story.answers += self._host == self._story.survivor
        return answer


class ShortStory(GroupStory):
    """All brokers but the coordinator die or hang, together or one after the other, and come back."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, SETTINGS)
        self.survivor = ""
        self.answers = 0

    def member_client(self, name: str) -> GroupClient:
        client = GroupClient(self, name)
        client._clients = {host: PunctualClient(self, host) for host in self.names}
        return client

    def stay_short(self) -> None:
        coordinator = self._coordinator()
        others = [machine for machine in self.machines if machine is not coordinator]
        self.let_pass(self.rng.uniform(0, 1))
        self.survivor, self.answers = coordinator.name, 0
        pause, hang = self.rng.choice([0.0, self.rng.uniform(0, 3)]), self.rng.random() < 0.5
        for machine in self.rng.sample(others, 2):
            if hang:
                self.loop.network.stall(coordinator.name, machine.name)
            else:
                machine.kill()
            self.let_pass(pause)
        self.let_pass(self.rng.uniform(1, 2) * ANSWER_SECONDS)
        assert hang or self._is_short(coordinator)
        assert self.answers
        for machine in others:
            self.loop.network.heal(coordinator.name, machine.name)
            if not machine.running:
                machine.start()
            self.let_pass(pause)

    def _coordinator(self) -> SimBroker:
        client = GroupClient(self, "looking")
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
        while client.coordinator is None:
            try:
                self.loop.run_until_complete(
                    self.loop.spawn("looking", client.call(ApiKey.FIND_COORDINATOR, request))
                )
            except NETWORK_TROUBLE:
                self.let_pass(0.1)
        return self.machines[self.names.index(client.coordinator)]

    def _is_short(self, machine: SimBroker) -> bool:
        assert machine.broker is not None
        led = machine.broker.table.by_name[OFFSETS_TOPIC.encode()].led.values()
        return any(partition.leading is not None and partition.leading.is_short for partition in led)


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = ShortStory(loop)
        story.begin()
        story.let_pass(story.rng.uniform(1, 4))
        for _ in range(2):
            story.stay_short()
            story.let_pass(story.rng.uniform(0, 5))
        story.heal()
        story.check_progress()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_every_request_is_answered_in_time(seed: int) -> None:
    run_story(seed)


def as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way has no deadline."""
    monkeypatch.setattr(Shard, "_watch_commits", lambda _shard, _delay_s: None)


def decided_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked whether anything can be committed, nor when it was."""
    monkeypatch.setattr(Shard, "may_store", lambda _shard: True)
    as_long_as_it_takes(monkeypatch)


# Each with a seed that finds it.
PLANTS = [(as_long_as_it_takes, 2), (decided_all_the_same, 6)]


@pytest.mark.parametrize(("plant", "seed"), PLANTS)
def test_the_story_finds(plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((SimulationError, Violation)) as caught:
        run_story(seed)
    assert isinstance(caught.value, Violation) or isinstance(caught.value.__cause__, Violation)
