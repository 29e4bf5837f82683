"""An unclean election under a required archive: what was archived of the lost records says nothing about the new ones.

The leader is alone in sync, and goes with what it has; whoever lives leads next, and gives the same offsets to others.
"""

import asyncio
import os

import pytest
from tests.sim.cluster_clients import Violation, create_topic
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_retiring import RETIRED as PARTITION
from tests.sim.cluster_story import BROKERS
from tests.sim.regrown import ARCHIVE, CONFIGS, RegrownStory

from penstock.coordination.image import Topic as TopicImage
from penstock.replication.table import Topic
from penstock.services.hosting import hosting
from penstock.services.maintenance import archive_progress as archive
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 50
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


class UncleanStory(RegrownStory):
    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        configs = {**CONFIGS, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        self.run(create_topic(self.client("admin"), BROKERS, configs))
        self.let_pass(1)

    def lose_the_leader(self) -> int:
        """Returns from where on its records are lost."""
        leader = self.leader(PARTITION)
        assert leader is not None
        others = [machine for machine in self.machines if machine is not leader]
        for other in others:
            other.kill()
        self.loop.run_until(lambda: len(self._state(PARTITION).isr) == 1)
        self.let_pass(1)
        parted = self.highest + 1
        self.write(self.rng.randint(1, 4))
        self.read(self.highest + 1)
        self.archive()
        leader.kill()
        if not self.says_epochs:
            # Told after the election, offsets alone would be taken for those of the new records.
            self.loop.crash(ARCHIVE)
        for other in others:
            other.start()
        self.loop.run_until(lambda: self.leader(PARTITION) not in (None, leader))
        self.let_pass(1)
        self._down[leader] = self.loop.time() + self.rng.uniform(0, 3)
        self.told = {offset: value for offset, value in self.told.items() if offset < parted}
        self.highest = parted - 1
        self.producer, self.sequence = (
            self.producer + 1,
            0,
        )  # the last one would be told that something is missing
        return parted

    def check_kept_from(self, parted: int) -> None:
        self.let_pass(1)
        start = self.leading().log.start_offset
        if start > parted:
            raise Violation(f"retention took up to {start}, and from {parted} on no archive has anything")

    def lead_alone(self, machine: SimBroker) -> None:
        """Whatever it has, and whatever others wrote that it never heard of."""
        for other in self.machines:
            if other is not machine and other.running:
                other.kill()
        if not machine.running:
            machine.start()
        self.loop.run_until(lambda: self.leader(PARTITION) is machine and machine.ready)
        self.let_pass(1)
        self.producer, self.sequence = self.producer + 1, 0
        self.highest = self.leading().log.end_offset - 1
        self.told.clear()


def take_turns(seed: int) -> None:
    """The last to lead parted from the archived log before the second to last, whose log is a part of that, did."""
    with SimLoop(seed) as loop:
        story = UncleanStory(loop)
        story.begin()
        first, second, last = story.rng.sample(story.machines, 3)
        story.write(story.rng.randint(1, 3))
        story.loop.run_until(lambda: len(story._state(PARTITION).isr) == BROKERS)
        story.let_pass(1)
        parted = story.highest + 1
        story.lead_alone(last)
        story.write(story.rng.randint(6, 10))
        story.lead_alone(first)
        second.start()
        story.write(story.rng.randint(3, 5))  # retention takes whole segments, of two
        story.let_pass(3)
        story.lead_alone(first)
        story.write(story.rng.randint(1, 3))
        story.place = 0
        story.read(story.highest + 1)
        while story.place <= story.highest:
            story._fetched()
        story.archive()
        story.loop.run_until(lambda: story.leading().log.start_offset > parted)  # it is believed
        for leader in (second, last):
            story.lead_alone(leader)
            story.let_pass(2)
        story.check_kept_from(parted)


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = UncleanStory(loop)
        story.says_epochs = story.rng.random() < 0.7
        story.begin()
        story.write(story.rng.randint(0, 3))
        for _ in range(story.rng.randint(1, 3)):
            lose_and_go_on(story)


def lose_and_go_on(story: UncleanStory) -> None:
    parted = story.lose_the_leader()
    story.write(story.rng.randint(3, 8))
    story.check_kept_from(parted)
    # The archive goes back to where they parted, and is believed again.
    story.place = min(parted, story.place)
    story.read(story.highest + 1)
    story.archive()
    story.loop.run_until(lambda: story.leading().log.start_offset > parted)
    for _ in range(100):
        story.let_pass(0.1)
        if len(story._state(PARTITION).isr) == BROKERS:
            return
    raise Violation(f"not in sync again: {story._state(PARTITION)}")


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_retention_takes_nothing_of_the_new_history_that_is_not_archived(seed: int) -> None:
    run_story(seed)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_leader_named_while_others_are_looked_at_is_looked_at_too(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long until a topic is looked at, as where there are many: the metadata goes on meanwhile."""
    honest = hosting.Hosting._doubtful

    async def slow(host: hosting.Hosting, image: TopicImage, topic: Topic) -> set[int]:
        await asyncio.sleep(SESSION_SECONDS * 3)
        return await honest(host, image, topic)

    monkeypatch.setattr(hosting.Hosting, "_doubtful", slow)
    run_story(seed)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_was_lowered_is_true_of_every_leader(seed: int) -> None:
    take_turns(seed)


def test_the_checkers_find_progress_that_is_lowered_without_its_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = archive._claim
    monkeypatch.setattr(archive, "_claim", lambda log, at, progress: (honest(log, at, progress)[0], None))
    assert all(goes_wrong(take_turns, seed) for seed in range(3))


def test_the_checkers_find_a_leader_that_believes_offsets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "vouched", lambda log, offset, epoch: offset)
    assert any(goes_wrong(run_story, seed) for seed in range(5))
