"""Unclean elections, deletions and replicas that are copied anew: what is acknowledged behind them stays."""

import os

import pytest
from tests.sim.cluster_copying import CopyingStory
from tests.sim.cluster_planted import goes_wrong

from penstock.replication.leading import Course, Leading
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 30, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> str:
    with SimLoop(seed) as loop:
        CopyingStory(loop).tell()
        return loop.trace_hash


# In 15 a replica compacted values away for the sake of records that an unclean election gave up.
@pytest.mark.parametrize("seed", sorted({15, *range(FIRST_SEED, FIRST_SEED + SEEDS)}))
def test_what_is_acknowledged_stays_however_replicas_are_copied(seed: int) -> None:
    run_story(seed)


def believes_an_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower without any batch goes on from wherever it is."""
    honest = Leading.course

    def trusting(one: Leading, replica: int, offset: int, epoch: int, own: range, tombstones: int) -> Course:
        return honest(one, replica, offset, max(epoch, 0), own, tombstones)

    monkeypatch.setattr(Leading, "course", trusting)


def test_the_checkers_find_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    believes_an_empty_log(monkeypatch)
    assert goes_wrong(run_story, 4)
