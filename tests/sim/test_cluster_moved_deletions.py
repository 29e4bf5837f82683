"""Moves, deletions and logs that fail, all at once, seed by seed (see `cluster_moved_deletions`)."""

import os

import pytest
from tests.sim.cluster_moved_deletions import MovedDeletionsStory
from tests.sim.cluster_planted import goes_wrong
from tests.sim.test_cluster_deletions import answered_at_once

from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 50, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = MovedDeletionsStory(loop)
        story.tell()
        assert story.deletions.peeks, "nobody looked: the story tells nothing"


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_and_nothing_deleted_comes_back_while_replicas_move(seed: int) -> None:
    run_story(seed)


@pytest.mark.soak
def test_the_checkers_find_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    answered_at_once(monkeypatch)  # found by seed 12
    assert any(goes_wrong(run_story, seed) for seed in range(100))
