"""Three brokers under everything that can happen to them, seed by seed (DESIGN §6, invariants 1 to 4, 9 and 10).

Producers write with acks=all to a topic with three replicas, of which two must be in sync; readers follow. Brokers are
killed, lose power, stop, are paused past their session, cut off from the store or from each other; disks fail, fill up
and slow down. In the end all are in sync again, everything acknowledged is there, at its offset, once and in order, and
the replicas are byte for byte the same. No epoch ever has two leaders.
"""

import os
from pathlib import Path

import pytest
from tests.sim.cluster_clients import History
from tests.sim.cluster_planted import PLANTED, Plant, goes_wrong
from tests.sim.cluster_story import Story

from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "50"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
# Seeds that found something once; each line: seed, and what it was.
REMEMBERED = [
    int(line.split()[0])
    for line in Path(__file__).with_name("cluster_seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def run_story(seed: int) -> tuple[str, History]:
    with SimLoop(seed) as loop:
        story = Story(loop)
        loop.executor.step_by_seed()
        story.tell()
        return loop.trace_hash, story.history


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_acknowledged_is_lost_whoever_dies(seed: int) -> None:
    run_story(seed)


@pytest.mark.parametrize("seed", REMEMBERED)
def test_a_story_that_once_went_wrong(seed: int) -> None:
    run_story(seed)


def test_one_seed_is_one_story() -> None:
    assert run_story(7)[0] == run_story(7)[0]
    assert run_story(7)[0] != run_story(8)[0]


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(300))
