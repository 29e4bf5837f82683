"""Topics are deleted and made again through brokers that lose the controller's answers, or get them late.

A request that a client sent once is carried out once at most, and not at all where its client is told that it was
refused: no more topics go, and come, than clients may have deleted and made by what they know. One deletion that is
carried out twice takes the topic that somebody else has made since.
"""

import asyncio
import os
from contextlib import suppress

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.messages import NETWORK_TROUBLE, TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.nodes import topic_path
from penstock.core.error_codes import ErrorCode
from penstock.replication.peer import PeerError
from penstock.services.peers import controller_client
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, delete_topics, list_partition_reassignments

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 30, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
ROUNDS = 40
REFUSED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_ALREADY_EXISTS)
BY_NAME, BY_NAME_TOO = 5, 6  # versions of DeleteTopics

GONE = delete_topics.DeleteTopicsRequest(
    topic_names=[TOPIC], topics=[delete_topics.DeleteTopicState(name=TOPIC)], timeout_ms=1000
)
NEW = create_topics.CreateTopicsRequest(
    topics=[create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)], timeout_ms=1000
)


class ForwardedStory(Scene):
    def tell(self) -> None:
        self.begin()
        # What clients asked for and were not refused; what they are told is open is among it.
        self.asked = {ApiKey.DELETE_TOPICS: 0, ApiKey.CREATE_TOPICS: 0}
        self.happened = {ApiKey.DELETE_TOPICS: 0, ApiKey.CREATE_TOPICS: 0}
        self.told_open = self.done = 0
        for machine in self.machines:
            for other in self.machines:
                if machine is not other:
                    self.loop.network.set_latency(machine.name, other.name, 0.0001, 0.02)
        self.spawn("watcher", self._count())
        self.spawn("trouble", self._trouble())
        for number in range(3):
            self.spawn(f"deleter-{number}", self._ask(f"deleter-{number}", ApiKey.DELETE_TOPICS, GONE))
            self.spawn(f"maker-{number}", self._ask(f"maker-{number}", ApiKey.CREATE_TOPICS, NEW))
        self.loop.run_until(lambda: self.done == 6)
        self.loop.network.heal_all()
        self.let_pass(40)
        self._check()
        assert self.told_open, "no answer was lost"
        assert self.happened[ApiKey.DELETE_TOPICS] > ROUNDS // 4

    async def _count(self) -> None:
        """What becomes of the name, from the store itself."""
        exists = True
        async for change in self.store.feed.after(self.store.feed.last, lambda: None):
            for event in change.events:
                if event.path == topic_path(TOPIC) and exists is not (event.node is not None):
                    exists = not exists
                    self.happened[ApiKey.CREATE_TOPICS if exists else ApiKey.DELETE_TOPICS] += 1

    def _check(self) -> None:
        for api, happened in self.happened.items():
            if happened > self.asked[api]:
                raise Violation(f"{api.name} happened {happened} times, where {self.asked[api]} could be")

    async def _ask(self, name: str, api: ApiKey, request: object) -> None:
        rng = self.loop.random(name)
        for _ in range(ROUNDS):
            await asyncio.sleep(rng.uniform(0, 0.1))
            version = rng.choice([BY_NAME, BY_NAME_TOO]) if api is ApiKey.DELETE_TOPICS else None
            # Longer than its broker tries: what a client is told is what its broker knows.
            client = SimClient(rng.choice(self.names), PORT, timeout_s=10)
            self.asked[api] += 1
            with suppress(*NETWORK_TROUBLE):
                answer = await client.call(api, request, version)
                results = answer.topics if api is ApiKey.CREATE_TOPICS else answer.responses
                self.told_open += results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
                self.asked[api] -= results[0].error_code in REFUSED
        self.done += 1

    async def _trouble(self) -> None:
        """Between the controller and the others: connections break, and answers stay on their way."""
        rng, network = self.loop.random("trouble"), self.loop.network
        while True:
            await asyncio.sleep(rng.uniform(0, 0.05))
            number = self.machines[0].broker.metadata.image.controller
            controller = self.machines[number - 1].name
            other = rng.choice([name for name in self.names if name != controller])
            if rng.random() < 0.7:
                network.cut(controller, other)
            else:
                network.stall(controller, other, one_way=True)
                await asyncio.sleep(rng.choice([0.01, 0.1, 0.5]))
                network.heal(controller, other)


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        ForwardedStory(loop).tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_was_asked_for_once_happens_once(seed: int) -> None:
    run_story(seed)


def test_the_checker_finds_requests_that_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_client, "NotSentError", PeerError)
    with pytest.raises(Violation):
        run_story(0)


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_made_again_outlives_the_deletion_whose_answer_was_lost(seed: int) -> None:
    with SimLoop(seed) as loop:
        scene = Scene(loop)
        scene.begin()
        controller = scene.machines[scene.machines[0].broker.metadata.image.controller - 1]
        other = next(machine for machine in scene.machines if machine is not controller)
        topics = controller.broker.metadata.image.topics
        look = list_partition_reassignments.ListPartitionReassignmentsRequest()
        # They are connected, and of the controller's words none arrives before the topic is there again.
        scene.do(SimClient(other.name, PORT).call(ApiKey.LIST_PARTITION_REASSIGNMENTS, look))
        loop.network.stall(controller.name, other.name, one_way=True)
        deleting = SimClient(other.name, PORT, timeout_s=10).call(ApiKey.DELETE_TOPICS, GONE)
        deletion = loop.spawn("deleter", deleting)
        loop.run_until(lambda: TOPIC not in topics)
        scene.do(SimClient(controller.name, PORT).call(ApiKey.CREATE_TOPICS, NEW))
        made = topics[TOPIC].id
        loop.network.cut(controller.name, other.name)
        loop.network.heal(controller.name, other.name)
        answer = loop.run_until_complete(deletion)
        assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        scene.let_pass(10)
        assert topics[TOPIC].id == made
        assert scene.produce(-1) is ErrorCode.NONE
