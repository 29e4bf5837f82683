"""A partition is retired, removed and made again, several times: offsets never go back, and the archive stays true."""

import os

import pytest
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.regrown import RegrownStory
from tests.sim.retiring_planted import (
    begins_at_zero,
    believes_any_end,
    keeps_what_seems_new,
    sends_readers_away,
)

from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 30
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = RegrownStory(loop)
        story.begin()
        story.write(story.rng.randint(0, 6))
        for _ in range(story.rng.randint(1, 3)):
            story.shrink_and_grow()
            story.write(story.rng.randint(0, 6))
            story.check_kept()
            story.read(story.highest + 1)
            story.archive()
            story.check_kept()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_offsets_never_go_back_and_nothing_goes_that_is_not_archived(seed: int) -> None:
    run_story(seed)


@pytest.mark.parametrize(
    "plant",
    [begins_at_zero, believes_any_end, keeps_what_seems_new, sends_readers_away],
    ids=lambda plant: plant.__name__,
)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(10))
