"""A partition is retired while consumers read from followers, who hear of it later: none shows what is moved."""

import os

import pytest
from tests.sim.cluster_near import NEAREST, NearHistory, give_racks, read_near
from tests.sim.cluster_retiring import RETIRED, RetiringStory
from tests.sim.cluster_story import BROKERS, watched

from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_NEAR_SEEDS", "12"))


class NearRetiringStory(RetiringStory):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, NEAREST)
        give_racks(self)
        self.near = NearHistory()
        self._readers: list[str] = []

    def begin(self) -> None:
        super().begin()
        self._readers = read_near(self, self.near, [RETIRED] * BROKERS)

    def check_data(self) -> None:
        for name in self._readers:
            self.loop.crash(name)
        super().check_data()


def run_story(seed: int) -> NearRetiringStory:
    with SimLoop(seed) as loop:
        story = NearRetiringStory(loop)
        with watched(story.history):
            story.begin()
            story.let_pass(story.rng.uniform(0.5, 2.0))
            if story.rng.random() < 0.5:
                story.misfortune()
            story.begin_to_retire()
            for _ in range(story.rng.randrange(3)):
                story.let_pass(story.rng.uniform(0.05, 1.0))
                story.misfortune()
            story.heal()
            story.check_progress()
            story.check_data()
        return story


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_follower_shows_more_than_the_limit(seed: int) -> None:
    run_story(seed)


def test_consumers_do_read_from_followers_meanwhile() -> None:
    assert any(run_story(seed).near.from_followers for seed in range(3))
