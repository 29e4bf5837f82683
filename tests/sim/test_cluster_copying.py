"""Unclean elections, deletions and replicas that are copied anew: what is acknowledged behind them stays."""

import os

import pytest
from tests.sim.cluster_copying import CopyingStory
from tests.sim.cluster_planted import Plant, goes_wrong

from penstock.replication import following
from penstock.replication.leading import FetchVerdict, Leading
from penstock.storage import scan
from penstock.storage.compaction.checkpoint import Cleaned
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 30, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> str:
    with SimLoop(seed) as loop:
        loop.executor.step_by_seed()
        CopyingStory(loop).tell()
        return loop.trace_hash


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_what_is_acknowledged_stays_however_replicas_are_copied(seed: int) -> None:
    run_story(seed)


def believes_an_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower without any batch goes on from wherever it is."""
    honest = Leading.verdict

    def trusting(
        leading: Leading, replica: int, offset: int, epoch: int, own: range, tombstones: int
    ) -> FetchVerdict:
        return honest(leading, replica, offset, max(epoch, 0), own, tombstones)

    monkeypatch.setattr(Leading, "verdict", trusting)


def takes_the_first_batch_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy asks nobody where an epoch began whose first records are compacted away."""

    async def first_batch(_: object, gap: range, epoch: int, __: int) -> list[tuple[int, int]]:
        return [(epoch, gap.stop)]

    monkeypatch.setattr(following, "starts_within", first_batch)


def reads_starts_from_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash epochs begin at the first batch that is left of them."""
    monkeypatch.setattr(scan.Scan, "_noted_starts", lambda _: [])


def knows_of_whole_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compaction went by that a crash broke off is not known."""
    monkeypatch.setattr(Cleaned, "lacks", lambda cleaned, end_offset: end_offset < cleaned.offset)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (believes_an_empty_log, 10),
        (takes_the_first_batch_for_the_start, 2),
        (reads_starts_from_batches, 17),
        (knows_of_whole_rounds_alone, 22),
    ],
)
def test_the_checkers_find_a_planted_bug(plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert goes_wrong(run_story, seed)
