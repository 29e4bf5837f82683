"""Unclean elections, deletions and replicas that are copied anew: what is acknowledged behind them stays."""

import os
from collections.abc import Callable

import pytest
from tests.sim.cluster_copying import CopyingStory
from tests.sim.cluster_planted import goes_wrong

from penstock.replication.following import Follower
from penstock.replication.leading import Course, Leading
from penstock.replication.partition import Partition
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


def begins_before_the_first_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that begins anew cuts its log to offset -1."""

    async def cut(follower: Follower, partition: Partition, start: int, tombstones: int) -> bool:
        await follower._quiet(partition)
        await follower._cut_to(partition, -1)
        partition.note_committed(partition.log.end())
        return True

    monkeypatch.setattr(Follower, "_begin_anew", cut)


def sends_back_who_is_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who is in sync is spared, and the mark counts as it stands."""

    honest = Leading.course

    def hasty(one: Leading, replica: int, offset: int, epoch: int, own: range, tombstones: int) -> Course:
        missed = offset < tombstones and one.progress[replica].copied_without < tombstones
        if missed and offset > own.start and replica not in one.state.isr:
            return Course.BEGIN_ANEW
        return honest(one, replica, offset, epoch, own, tombstones)

    monkeypatch.setattr(Leading, "course", hasty)


def believes_an_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower without any batch goes on from wherever it is."""
    honest = Leading.course

    def trusting(one: Leading, replica: int, offset: int, epoch: int, own: range, tombstones: int) -> Course:
        return honest(one, replica, offset, max(epoch, 0), own, tombstones)

    monkeypatch.setattr(Leading, "course", trusting)


@pytest.mark.soak
@pytest.mark.parametrize(
    "plant",
    [begins_before_the_first_offset, sends_back_who_is_eligible, believes_an_empty_log],
    ids=lambda plant: plant.__name__,
)
def test_the_checkers_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(300))
