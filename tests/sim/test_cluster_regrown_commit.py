"""A partition is retired, removed and made again before the coordinator of a group has heard of it, or of all of it.

What the group commits in the new partition may be acknowledged under metadata of the old one. Whatever the coordinator
has heard of: who names the partition is told what was committed, in the old one or the new, and passes over nothing.
"""

from typing import Any

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_retiring import RETIRED, RetiringStory
from tests.sim.cluster_story import Story
from tests.sim.messages import TOPIC, batch_of, produce_request

from penstock.coordination.image import Topic
from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import KnownTopic
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_partitions, find_coordinator, offset_commit, offset_fetch

SETTINGS = {
    "penstock.retire.check.interval.ms": "200",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "penstock.heal.grace.ms": "600000",
    "offsets.topic.replication.factor": "3",
}
CONFIGS = {"internal.segment.bytes": "200", "penstock.retire.grace.ms": "1000", "retention.ms": "1"}
LAG_SECONDS = 0.4
NONE = -1  # what is told of a partition for which nothing is committed
SEEDS = 3


class LateCoordinator(RetiringStory):
    def __init__(self, loop: SimLoop) -> None:
        Story.__init__(self, loop, SETTINGS, synced=False)
        self.group = ""

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self._do(create_topic(self.client("admin"), 1, CONFIGS))
        self.let_pass(1)
        self.controller = self.machines[self._image(self.machines[0]).controller - 1]
        self.coordinator = self._find_coordinator()
        self.let_pass(1)

    def _find_coordinator(self) -> SimBroker:
        """One that neither decides about the partition nor leads it: it alone hears late."""
        for number in range(200):
            self.group = f"group-{number // 5}"
            request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.group])
            found = self._ask(self.controller, ApiKey.FIND_COORDINATOR, request).coordinators[0]
            machine = self.machines[found.node_id - 1]
            if found.error_code == ErrorCode.NONE and machine not in (self.controller, self.leader(RETIRED)):
                return machine
            self.let_pass(0.1)
        raise AssertionError("every group is coordinated by the controller, or by the partition's leader")

    def _do(self, work: Any) -> Any:
        return self.loop.run_until_complete(self.loop.spawn("client", work))

    def _ask(self, machine: SimBroker, api: ApiKey, request: Any, version: int | None = None) -> Any:
        return self._do(SimClient(machine.name, PORT, 30).call(api, request, version))

    def _image(self, machine: SimBroker) -> Any:
        assert machine.broker is not None
        return machine.broker.metadata.image

    def topic(self, machine: SimBroker) -> Topic:
        found: Topic = self._image(machine).topics[TOPIC]
        return found

    def until_removed(self) -> None:
        self.loop.run_until(lambda: len(self.topic(self.controller).partitions) == RETIRED)

    def grow(self) -> None:
        """At the controller alone, so that nothing waits for the one that hears late."""
        controller = self.machines.index(self.controller) + 1
        assignment = create_partitions.CreatePartitionsAssignment(broker_ids=[controller])
        wanted = create_partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=[assignment])
        request = create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=5000)
        answer = self._ask(self.controller, ApiKey.CREATE_PARTITIONS, request)
        assert answer.results[0].error_code == ErrorCode.NONE

    def write(self, machine: SimBroker | None, count: int) -> int:
        """Returns the offset behind what was written."""
        assert machine is not None
        for _ in range(40):
            request = produce_request(RETIRED, batch_of([b"record"] * count))
            answer = self._ask(machine, ApiKey.PRODUCE, request).responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                end: int = answer.base_offset + count
                return end
            self.let_pass(0.005)
        raise AssertionError(ErrorCode(answer.error_code).name)

    def commit(self, offset: int) -> ErrorCode:
        place = offset_commit.OffsetCommitRequestPartition(
            partition_index=RETIRED, committed_offset=offset, committed_metadata=""
        )
        topic_id = self.topic(self.coordinator).id
        topic = offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[place])
        request = offset_commit.OffsetCommitRequest(group_id=self.group, topics=[topic])
        answer = self._ask(self.coordinator, ApiKey.OFFSET_COMMIT, request, 10)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        """As a consumer asks, which knows the partition from whichever broker told it of the topic."""
        topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[RETIRED])
        offset: int = self._fetched([topic])[0].partitions[0].committed_offset
        return offset

    def listed(self) -> list[int]:
        """As whoever wants to know all that a group has committed."""
        return [partition.committed_offset for topic in self._fetched(None) for partition in topic.partitions]

    def _fetched(self, topics: Any) -> Any:
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        request = offset_fetch.OffsetFetchRequest(groups=[wanted])
        group = self._ask(self.coordinator, ApiKey.OFFSET_FETCH, request, 9).groups[0]
        assert group.error_code == ErrorCode.NONE
        return group.topics

    def read_to_its_end(self) -> int:
        """The old partition, before it is retired. Returns what is committed."""
        self.begin()
        place = self.write(self.leader(RETIRED), 5)
        assert self.commit(place) is ErrorCode.NONE
        return place

    def remove(self) -> None:
        """The coordinator hears of it."""
        self.begin_to_retire()
        self.until_removed()
        self.loop.run_until(lambda: bool(self.topic(self.coordinator).removed))
        self.let_pass(1)


def commit_in_the_new_partition(story: LateCoordinator) -> int:
    story.read_to_its_end()
    story.begin_to_retire()
    story.loop.run_until(story.is_hidden)
    story.coordinator.store_lag_s = LAG_SECONDS
    story.until_removed()
    story.grow()
    place = story.write(story.controller, 3)
    assert story.commit(place) is ErrorCode.NONE
    assert not story.topic(story.coordinator).removed, "it has heard of nothing"
    return place


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_coordinator_that_hears_late_keeps_what_is_committed_in_a_partition_that_was_made_again(
    seed: int,
) -> None:
    with SimLoop(seed) as loop:
        story = LateCoordinator(loop)
        place = commit_in_the_new_partition(story)
        for _ in range(60):  # while it hears
            assert story.committed() == place
            story.let_pass(0.01)
        story.coordinator.store_lag_s = 0
        story.let_pass(3)
        assert story.topic(story.coordinator).removed[RETIRED].end == place - 3
        assert (story.committed(), story.listed()) == (place, [place])
        story.begin_to_retire()
        story.until_removed()
        story.let_pass(1)
        assert story.listed() == [], "it is of a partition that is gone by now"
        assert story.committed() == place, "whoever asks knows of another one"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_knows_of_the_new_partition_is_told_what_was_committed_in_the_old_one(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = LateCoordinator(loop)
        place = story.read_to_its_end()
        story.remove()
        assert story.listed() == []
        story.coordinator.store_lag_s = LAG_SECONDS
        story.grow()
        story.write(story.controller, 3)
        heard = False
        while not heard:
            heard = len(story.topic(story.coordinator).partitions) > RETIRED
            assert story.committed() == place, "who begins at the end there passes over what is in it"
            story.let_pass(0.01)
        assert story.listed() == [place]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_consumer_that_begins_at_the_end_reads_all_of_the_new_partition(seed: int) -> None:
    """Where it is told of no commit, it notes the end, until that is stored."""
    with SimLoop(seed) as loop:
        story = LateCoordinator(loop)
        place = story.read_to_its_end()
        story.remove()
        story.coordinator.store_lag_s = LAG_SECONDS
        story.grow()
        end = story.write(story.controller, 3)
        if story.committed() == NONE:
            while story.commit(end) is not ErrorCode.NONE:
                story.let_pass(0.05)
        story.let_pass(2)
        assert story.committed() == place, f"{place} to {end} are read by nobody"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_committed_where_the_new_partition_begins_is_told_while_the_coordinator_hears(
    seed: int,
) -> None:
    """It was acknowledged under metadata of the old partition, and may as well be of that one."""
    with SimLoop(seed) as loop:
        story = LateCoordinator(loop)
        story.begin()
        place = story.write(story.leader(RETIRED), 5)
        story.begin_to_retire()
        loop.run_until(story.is_hidden)
        story.coordinator.store_lag_s = LAG_SECONDS
        story.until_removed()
        story.grow()
        story.write(story.controller, 3)
        assert story.commit(place) is ErrorCode.NONE
        told = set()
        for _ in range(60):  # while it hears
            told.add(story.committed())
            story.let_pass(0.01)
        story.coordinator.store_lag_s = 0
        story.let_pass(3)
        assert told | {story.committed()} == {place}


def test_the_story_finds_a_coordinator_that_goes_by_the_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KnownTopic, "keeps", lambda known, partition: partition < known.partitions)
    with SimLoop(0) as loop:
        story = LateCoordinator(loop)
        commit_in_the_new_partition(story)
        story.let_pass(3)
        assert story.committed() == NONE
