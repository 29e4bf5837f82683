"""A topic is altered through brokers that hear late of its deletion, while it is deleted and made again.

No alteration that was meant for a topic that is deleted brings back its id in place of the next one's.
"""

import asyncio
import os
from contextlib import suppress

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.group_members import PARTITIONS
from tests.sim.messages import NETWORK_TROUBLE, TOPIC
from tests.sim.test_cluster_scenes import Scene, altering

from penstock.coordination import nodes, writes
from penstock.coordination.tree import Check
from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, delete_topics

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 30, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
ROUNDS = 12


class AlteredStory(Scene):
    def tell(self) -> None:
        self.begin()
        self.deleted: set[bytes] = set()
        self.is_done = False
        controller = self.machines[0].broker.metadata.image.controller
        for number, machine in enumerate(self.machines, 1):
            machine.store_lag_s = 0.0 if number == controller else self.rng.choice([0.0, 0.02, 0.1])
        for number in range(3):
            self.spawn(f"alterer-{number}", self._alter(f"alterer-{number}"))
        self.do(self._remake())
        self.let_pass(5)
        for machine in self.machines:
            topic = machine.broker.metadata.image.topics.get(TOPIC)
            if topic is None or topic.id in self.deleted:
                raise Violation(f"{machine.name} has {topic}; these were deleted: {self.deleted}")
        assert len(self.deleted) > ROUNDS // 2

    async def _remake(self) -> None:
        rng = self.loop.random("remaker")
        gone = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=TOPIC)], timeout_ms=5000
        )
        topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        new = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        for _ in range(ROUNDS):
            client = SimClient(rng.choice(self.names), PORT)
            deletion = (await client.call(ApiKey.DELETE_TOPICS, gone, 6)).responses[0]
            if deletion.error_code == ErrorCode.NONE:
                self.deleted.add(bytes(deletion.topic_id))
            await asyncio.sleep(rng.choice([0, 0, 0.02]))
            await client.call(ApiKey.CREATE_TOPICS, new)
            await asyncio.sleep(rng.uniform(0, 0.02))
        self.is_done = True

    async def _alter(self, name: str) -> None:
        rng = self.loop.random(name)
        while not self.is_done:
            await asyncio.sleep(rng.uniform(0, 0.02))
            with suppress(*NETWORK_TROUBLE):
                request = altering("retention.ms", str(rng.randint(1, 10**9)))
                client = SimClient(rng.choice(self.names), PORT)
                await client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        AlteredStory(loop).tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_was_meant_for_a_deleted_topic_never_changes_the_next(seed: int) -> None:
    run_story(seed)


def test_the_checker_finds_writes_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "is_alive", lambda _: Check(nodes.TOPICS))
    with pytest.raises(Violation):
        run_story(0)
