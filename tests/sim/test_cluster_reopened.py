"""Disks fail, drop what they could not write, and logs are opened again; seed by seed (see `cluster_reopening`)."""

import os

import pytest
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_reopening import ReopeningStory
from tests.sim.reopening_planted import PLANTED

from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "8"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
# Seeds that found something once.
REMEMBERED = [
    701869,  # a checkpoint that began on a slow disk failed 20 s later: told then for the first time, not again
]


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = ReopeningStory(loop)
        loop.executor.step_by_seed()
        story.tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_acknowledged_is_lost_with_what_disks_drop(seed: int) -> None:
    run_story(seed)


@pytest.mark.parametrize("seed", REMEMBERED)
def test_a_story_that_once_went_wrong(seed: int) -> None:
    run_story(seed)


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(250))
