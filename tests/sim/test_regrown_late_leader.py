"""A partition with one replica is retired, removed and made again elsewhere: its old leader hears late (SPEC R7).

The coordinator tells a group where the new one begins, and the group asks for it where it has read so far. There is no
such place in the old log, but that is not for its leader to say.
"""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_retiring import RETIRED
from tests.sim.messages import TOPIC, fetch_request
from tests.sim.test_cluster_regrown_commit import CONFIGS, LAG_SECONDS, LateCoordinator

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics

MOVED, NEW = 4, 3


class LateLeader(LateCoordinator):
    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.let_pass(1)
        self.controller = self.machines[self._image(self.machines[0]).controller - 1]
        self.old = next(machine for machine in self.machines if machine is not self.controller)
        self._make_topic(self.machines.index(self.old) + 1)
        self.let_pass(1)
        self.coordinator = self._find_coordinator()
        self.let_pass(1)

    def _make_topic(self, node: int) -> None:
        places = [
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=[node])
            for index in range(2)
        ]
        configs = [
            create_topics.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()
        ]
        topic = create_topics.CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=places, configs=configs
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        answer = self._ask(self.controller, ApiKey.CREATE_TOPICS, request)
        assert answer.topics[0].error_code == ErrorCode.NONE

    def retire_and_grow(self, limit: int) -> None:
        """The new one is the controller's, and has records; the old leader has heard of nothing."""
        assert self.commit(limit) is ErrorCode.NONE
        self.begin_to_retire()
        self.loop.run_until(self.is_retired)
        self.let_pass(0.3)
        self.write(self.old, MOVED)
        self.loop.run_until(self.is_hidden)
        self.old.store_lag_s = LAG_SECONDS
        self.until_removed()
        self.configure({"retention.ms": "-1"})
        self.loop.run_until(lambda: self.topic(self.controller).configs.get("retention.ms") == "-1")
        self.grow()
        self.write(self.controller, NEW)

    def fetched(self, machine: SimBroker, offset: int) -> ErrorCode:
        answer = self._ask(machine, ApiKey.FETCH, fetch_request(RETIRED, offset), 12)
        return ErrorCode(answer.responses[0].partitions[0].error_code)


@pytest.fixture(params=range(3))
def story(request: pytest.FixtureRequest) -> Iterator[LateLeader]:
    with SimLoop(request.param) as loop:
        story = LateLeader(loop)
        story.begin()
        yield story


def test_the_old_leader_calls_no_place_of_the_new_one_none(story: LateLeader) -> None:
    limit = story.write(story.old, 5)
    story.retire_and_grow(limit)
    first = limit + MOVED
    assert story.committed() == first
    told: set[ErrorCode] = set()
    while not story.topic(story.old).removed:
        told |= {story.fetched(story.old, offset) for offset in (limit, first, first + NEW)}
        story.let_pass(0.01)
    assert told
    assert ErrorCode.OFFSET_OUT_OF_RANGE not in told
    assert story.fetched(story.controller, first) is ErrorCode.NONE
