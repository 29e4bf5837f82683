"""The coordinators' topic is deleted and made again: nothing of the old one reaches the new one (S1)."""

import os

import pytest
from tests.sim.again_planted import leads_what_is_deleted
from tests.sim.cluster_planted import Plant
from tests.sim.coordinator_again import CoordinatorStory

from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> CoordinatorStory:
    with SimLoop(seed) as loop:
        story = CoordinatorStory(loop)
        story.tell()
        return story


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_no_commit_is_lost_or_comes_back_with_the_topic_made_again(seed: int) -> None:
    run_story(seed)


def test_groups_commit_in_these_stories() -> None:
    assert sum(run_story(seed).commits.acknowledged for seed in range(2)) > 20


# Each with a seed that finds it.
PLANTS = [(leads_what_is_deleted, 5)]


@pytest.mark.parametrize(("plant", "seed"), PLANTS)
def test_the_story_finds_a_planted_bug(plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, SimulationError)) as caught:
        run_story(seed)
    assert isinstance(caught.value.__cause__ or caught.value, AssertionError)
