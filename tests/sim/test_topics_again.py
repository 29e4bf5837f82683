"""Topics deleted and made again: what still works on the files of the old one never reaches the new one (S1)."""

import os

import pytest
from tests.sim.topics_again import AgainStory

from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        AgainStory(loop).tell()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_of_a_deleted_topic_reaches_the_one_made_again(seed: int) -> None:
    run_story(seed)
