"""A consumer group whose coordinator dies and moves (invariant 6, over fail-over).

`__consumer_offsets` has three replicas, two of which must be in sync. Members find their coordinator themselves.
Brokers go through everything that happens to them in `cluster_story`; no commit that was acknowledged is lost, and no
partition has two owners in a generation.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any

import pytest
from tests.sim.cluster_story import Story
from tests.sim.group_members import (
    GROUP,
    NETWORK_TROUBLE,
    PARTITIONS,
    TOPIC,
    History,
    Member,
    Outdated,
    committed,
    current_topic_id,
    delete_topic,
)

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, find_coordinator

MEMBERS = 3
# A fifth of what the cluster itself gets.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "200")) // 5
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
SETTINGS = {"min.insync.replicas": "2"}
# After these a member looks for its coordinator again.
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupClient:
    """Sends what concerns the group to its coordinator, and forgets who that is when something goes wrong."""

    def __init__(self, story: Story, name: str) -> None:
        self._clients = {one: SimClient(one, PORT, timeout_s=5.0) for one in story.names}
        self._rng = story.loop.random(f"{name}/groups")
        self._names = story.names
        self._coordinator: str | None = None

    async def call(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        if api == ApiKey.FIND_COORDINATOR or self._coordinator is None:
            found = await self._find()
            if api == ApiKey.FIND_COORDINATOR:
                return found
        if self._coordinator is None:
            raise ConnectionRefusedError("nobody coordinates the group")
        try:
            answer = await self._clients[self._coordinator].call(api, request, version)
        except NETWORK_TROUBLE:
            self._coordinator = None
            raise
        if getattr(answer, "error_code", 0) in _ELSEWHERE:
            self._coordinator = None
        return answer

    async def _find(self) -> Any:
        self._coordinator = None
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
        answer = await self._clients[self._rng.choice(self._names)].call(ApiKey.FIND_COORDINATOR, request)
        if answer.coordinators[0].error_code == ErrorCode.NONE:
            self._coordinator = answer.coordinators[0].host
        return answer

    async def create_topic(self) -> None:
        topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        while True:
            with suppress(*NETWORK_TROUBLE):
                request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
                name = self._rng.choice(self._names)
                answer = await self._clients[name].call(ApiKey.CREATE_TOPICS, request)
                if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            await asyncio.sleep(0.1)


class GroupStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, SETTINGS, synced=False)
        self.groups = History(by_id=self.rng.random() < 0.5)

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        work = GroupClient(self, "admin").create_topic()
        self.loop.run_until_complete(self.loop.spawn("admin", work))
        for number in range(MEMBERS):
            name = f"member-{number}"
            member = Member(self.groups, name, self.loop.random(name), GroupClient(self, name))
            self.spawn(name, member.live())
        if self.groups.by_id:
            self.spawn("remaker", self._remake())

    async def _remake(self) -> None:
        """The topic is deleted and made again while coordinators die and move."""
        rng = self.loop.random("remaker")
        for _ in range(2):
            await asyncio.sleep(rng.uniform(1, 5))
            client = GroupClient(self, "remaker")
            await delete_topic(client)
            await client.create_topic()

    def check_progress(self) -> None:
        self.groups.calm = True
        for _ in range(40):
            self.let_pass(0.5)
            if self._is_whole():
                break
        self.let_pass(8)  # long enough for every session and rebalance that was under way
        before = self.groups.commits
        self.let_pass(3)
        assert self.groups.commits > before, "nobody commits any more"
        generation = self.groups.generation
        owned = {partition for number, partition in self.groups.owners if number == generation}
        assert owned == set(range(PARTITIONS)), "a partition has no owner"
        for number in range(MEMBERS):
            self.loop.crash(f"member-{number}")
        self.loop.run_until_complete(self.loop.spawn("checker", self._last_look()))

    async def _last_look(self) -> None:
        client = GroupClient(self, "checker")
        while True:
            with suppress(Outdated, *NETWORK_TROUBLE):
                topic_id = await current_topic_id(client, self.groups)
                await committed(client, self.groups, topic_id, list(range(PARTITIONS)))
                return
            await asyncio.sleep(0.1)


def run_story(seed: int) -> History:
    with SimLoop(seed) as loop:
        story = GroupStory(loop)
        story.begin()
        for _ in range(story.rng.randint(3, 6)):
            story.let_pass(story.rng.uniform(0.2, 1.5))
            story.misfortune()
        story.heal()
        story.check_progress()
        return story.groups


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_commits_survive_their_coordinator(seed: int) -> None:
    run_story(seed)


def test_groups_get_somewhere_in_these_stories() -> None:
    assert sum(run_story(seed).commits for seed in range(3)) > 0
