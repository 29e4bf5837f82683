"""Topics deleted and made again: what still works on the files of the old one never reaches the new one (S1)."""

import os
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import pytest
from tests.sim.again_planted import (
    deletes_under_running_work,
    leads_what_is_deleted,
    retention_ends_the_broker,
    trusts_any_recovery_point,
)
from tests.sim.cluster_planted import Plant
from tests.sim.topics_again import AgainStory

from penstock.core.turns import give_way
from penstock.frontends.kafka import hot
from penstock.testing.sim_failures import SimulationError
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> str:
    with ExitStack() as bounds, SimLoop(seed) as loop:
        # A Produce gives way before each batch but its first, until the one before it is synced.
        for bound in ("TURN_ITEMS_MAX", "SYNCS_OF_REQUEST_MAX"):
            bounds.enter_context(patch.object(hot, bound, 1))
        bounds.enter_context(patch.object(hot, "give_way", partial(give_way, at_once=1)))
        AgainStory(loop).tell()
        return loop.trace_hash


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_of_a_deleted_topic_reaches_the_one_made_again(seed: int) -> None:
    run_story(seed)


def test_jobs_in_steps_repeat_exactly() -> None:
    assert run_story(5) == run_story(5)


# Each with a seed that finds it.
PLANTS = [
    (deletes_under_running_work, 18),
    (trusts_any_recovery_point, 5),
    (retention_ends_the_broker, 18),
    (leads_what_is_deleted, 0),
]


@pytest.mark.parametrize(("plant", "seed"), PLANTS)
def test_the_story_finds_a_planted_bug(plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert goes_wrong(seed)


def goes_wrong(seed: int) -> bool:
    """Also where a task ends that never should: the broker, which stops then, is started by nobody here."""
    try:
        run_story(seed)
    except AssertionError:
        return True
    except SimulationError as error:
        return isinstance(error.__cause__, AssertionError)
    return False
