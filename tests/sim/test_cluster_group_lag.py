"""Coordinators that hear late of the metadata: what was acknowledged under newer metadata is never dropped.

Topics come and go while every broker lags behind the store by its own measure. As soon as a commit for a new topic is
acknowledged its coordinator is killed; the next one reads offsets of topics that are gone beside those of topics that
it may have heard of only just now, and must tell them apart.
"""

import asyncio
from contextlib import suppress

import pytest
from tests.sim.cluster_story import Story
from tests.sim.group_client import GroupClient
from tests.sim.group_members import GROUP, NETWORK_TROUBLE, Violation

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import KnownTopic
from penstock.services.coordinator.runtime import CoordinatorRuntime
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics, offset_commit, offset_fetch

ROUNDS = 4
LAG_SECONDS_MAX = 0.6
RETRY_SECONDS = 0.02
SEEDS = 5
PLANTED_SEED = 0


class LateStory(Story):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, {"min.insync.replicas": "2"}, synced=False)
        self.acknowledged: dict[str, int] = {}  # of the topics that are there
        self.moves = 0  # how often another broker took over

    def tell(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        for number in range(ROUNDS):
            self._lag()
            client = GroupClient(self, f"client-{number}")
            self._do(self._round(client, number))
            before = client.coordinator
            self.machines[self.names.index(before or "")].kill()
            self._do(self._check(client))
            self.moves += client.coordinator != before
            self.machines[self.names.index(before or "")].start()
            self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
            self.let_pass(2)  # all are in sync again

    def _do(self, work: object) -> None:
        self.loop.run_until_complete(self.loop.spawn("admin", work))  # type: ignore[arg-type]

    def _lag(self) -> None:
        for machine in self.machines:
            machine.store_lag_s = self.rng.choice([0.0, self.rng.uniform(0, LAG_SECONDS_MAX)])

    async def _round(self, client: GroupClient, number: int) -> None:
        doomed = self.rng.choice([None, *self.acknowledged])
        async with asyncio.TaskGroup() as tasks:
            if doomed is not None:
                del self.acknowledged[doomed]
                tasks.create_task(self._delete(doomed))
            for name in (f"first-{number}", f"second-{number}"):
                tasks.create_task(client.create_topic(name))
        for name in (f"first-{number}", f"second-{number}"):
            await self._commit(client, name, number + 1)

    async def _delete(self, name: str) -> None:
        """Nobody waits until all know of it."""
        client = GroupClient(self, "deleter")
        request = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=name)], timeout_ms=1_000
        )
        with suppress(*NETWORK_TROUBLE):
            await client.call(ApiKey.DELETE_TOPICS, request, 6)

    async def _commit(self, client: GroupClient, name: str, offset: int) -> None:
        place = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=[place])
        request = offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic])
        while True:
            with suppress(*NETWORK_TROUBLE):
                answer = await client.call(ApiKey.OFFSET_COMMIT, request, 9)
                code = answer.topics[0].partitions[0].error_code
                if code == ErrorCode.NONE:
                    self.acknowledged[name] = offset
                    return
                if code == ErrorCode.NOT_COORDINATOR:
                    client.coordinator = None
            await asyncio.sleep(RETRY_SECONDS)

    async def _check(self, client: GroupClient) -> None:
        topics = [
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
            for name in self.acknowledged
        ]
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        client.coordinator = None
        while True:
            with suppress(*NETWORK_TROUBLE):
                request = offset_fetch.OffsetFetchRequest(groups=[wanted])
                group = (await client.call(ApiKey.OFFSET_FETCH, request, 9)).groups[0]
                if group.error_code == ErrorCode.NONE:
                    break
                client.coordinator = None
            await asyncio.sleep(RETRY_SECONDS)
        found = {topic.name: topic.partitions[0].committed_offset for topic in group.topics}
        if found != self.acknowledged:
            raise Violation(f"{self.acknowledged} was acknowledged, {found} is left")


def run_story(seed: int) -> LateStory:
    with SimLoop(seed) as loop:
        story = LateStory(loop)
        story.tell()
        return story


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_coordinator_that_hears_late_drops_no_commit(seed: int) -> None:
    assert run_story(seed).moves, "another broker has to take over"


def test_the_checker_finds_conclusions_from_metadata_of_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CoordinatorRuntime.known_topic
    first_seen: dict[tuple[CoordinatorRuntime, str], float] = {}

    def late(runtime: CoordinatorRuntime, name: str) -> KnownTopic | None:
        known, now = honest(runtime, name), runtime._loop.time()
        if known is None:
            return None
        return known if now - first_seen.setdefault((runtime, name), now) > 1 else None

    monkeypatch.setattr(CoordinatorRuntime, "known_topic", late)
    with pytest.raises(Violation):
        run_story(PLANTED_SEED)
