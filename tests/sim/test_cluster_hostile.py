"""Three brokers under what is late, lost, read wrong and raised (`cluster_hostile`): invariants 1 to 4, and 10."""

import os

import pytest
from tests.sim.cluster_hostile import HostileStory
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.hostile_planted import PLANTED

from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "15"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        HostileStory(loop).tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_whatever_is_late_lost_or_read_wrong(seed: int) -> None:
    run_story(seed)


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(60))
