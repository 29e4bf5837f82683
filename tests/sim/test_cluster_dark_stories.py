"""Silent power cuts while replicas move, also to a single one, and the minimum changes: seed by seed.

Nobody who has everything is given up for one that is only registered (ADR 8, ADR 10).
"""

import os

import pytest
from tests.property import copies_planted
from tests.sim.cluster_dark import tell
from tests.sim.cluster_planted import Plant, goes_wrong

from penstock.controller import controller
from penstock.controller import image_queries as sight
from penstock.replication.partition import Partition

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_acknowledged_is_lost_while_the_dead_count_as_live(seed: int) -> None:
    tell(seed)


def forgets_who_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "react", copies_planted.forget_who_was_in_sync())


def forgets_who_was_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "react", copies_planted.forget_who_was_eligible())


def finishes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "grown", copies_planted.finish_without_a_word)
    monkeypatch.setattr(sight, "hand_over", lambda state, world: state)


def vouches_for_page_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "vouches", True)


# Found by seeds 1, 18, 11 and 11.
PLANTED: list[Plant] = [
    forgets_who_leaves,
    forgets_who_was_eligible,
    finishes_by_itself,
    vouches_for_page_caches,
]


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(tell, seed) for seed in range(200))
