"""Three brokers that run short of descriptors, and lose power (`cluster_short`): invariants 1, 2, 4 and 10."""

import os

import pytest
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_short import ShortStory
from tests.sim.short_planted import PLANTED

from penstock.testing.sim_loop import SimLoop

# A tenth of what the cluster itself gets.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 10
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        ShortStory(loop).tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_however_few_files_may_be_open(seed: int) -> None:
    run_story(seed)


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(60))
