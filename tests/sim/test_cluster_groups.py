"""A consumer group whose coordinator dies and moves (invariant 6, over fail-over).

`__consumer_offsets` has three replicas, two of which must be in sync. Members find their coordinator themselves.
Brokers go through everything that happens to them in `cluster_story`; no commit that was acknowledged is lost, and no
partition has two owners in a generation.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress

import pytest
from tests.sim.cluster_story import Story
from tests.sim.group_client import GroupClient
from tests.sim.group_faults import (
    Plant,
    deletions_unseen_while_loading,
    memory_ahead_of_the_log,
    remember_commits_for_ever,
)
from tests.sim.group_members import (
    NETWORK_TROUBLE,
    PARTITIONS,
    History,
    Member,
    Outdated,
    Violation,
    committed,
    current_topic_id,
    delete_topic,
)

from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop

MEMBERS = 3
# A fifth of what the cluster itself gets.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "100")) // 5
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
SETTINGS = {"min.insync.replicas": "2"}


class GroupStory(Story):
    def __init__(self, loop: SimLoop, settings: Mapping[str, str] = SETTINGS) -> None:
        super().__init__(loop, settings, synced=False)
        self.groups = History(by_id=self.rng.random() < 0.5)

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        work = GroupClient(self, "admin").create_topic()
        self.loop.run_until_complete(self.loop.spawn("admin", work))
        for number in range(MEMBERS):
            name = f"member-{number}"
            member = Member(self.groups, name, self.loop.random(name), self.member_client(name))
            self.spawn(name, member.live())
        if self.groups.by_id:
            self.spawn("remaker", self._remake())

    def member_client(self, name: str) -> GroupClient:
        return GroupClient(self, name)

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


# Each with a seed that finds it.
PLANTS = [(remember_commits_for_ever, 1), (memory_ahead_of_the_log, 2), (deletions_unseen_while_loading, 23)]


@pytest.mark.parametrize(("plant", "seed"), PLANTS)
def test_the_checker_finds(plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((SimulationError, Violation)) as caught:
        run_story(seed)
    assert isinstance(caught.value, Violation) or isinstance(caught.value.__cause__, Violation)
