"""Unclean elections (`unclean.leader.election.enable`): what is lost is lost, and nothing else goes wrong with it."""

import os
from dataclasses import replace

import pytest
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_unclean import UncleanStory

from penstock.controller import controller, election
from penstock.coordination.nodes import PartitionState
from penstock.replication import following
from penstock.storage.high_watermarks import Mark
from penstock.storage.log import Log
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "300")) // 30, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


def run_story(seed: int) -> int:
    with SimLoop(seed) as loop:
        story = UncleanStory(loop)
        story.tell()
        return story.history.lost


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_whoever_lives_leads_and_nobody_sees_two_values_in_one_place(seed: int) -> None:
    run_story(seed)


def waits_for_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is elected while the last one in sync is dead, whatever the topic allows."""
    monkeypatch.setattr(election, "least_loss", lambda *_: election.NOBODY)


def elects_under_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader goes on in the epoch of the last one."""
    honest = election.react

    def react(state: PartitionState, world: election.World, rules: election.Rules) -> PartitionState:
        after = honest(state, world, rules)
        if after.leader in state.isr or after.leader == state.leader or after.leader == election.NOBODY:
            return after
        return replace(after, leader_epoch=state.leader_epoch)

    monkeypatch.setattr(controller, "react", react)


def parts_one_record_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who led and comes back keeps the first of the records that its successor never had."""
    honest = following.divergence

    def late(log: Log, epoch: int, end_offset: int) -> int:
        return min(honest(log, epoch, end_offset) + 1, log.end_offset)

    monkeypatch.setattr(following, "divergence", late)


def believes_old_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known to be committed counts after a restart, whatever has taken its place."""
    monkeypatch.setattr(Mark, "committed", lambda mark, _: mark.offset)


# Found by seeds 0, 0, 1 and 4.
PLANTED: list[Plant] = [
    waits_for_the_dead,
    elects_under_the_same_epoch,
    parts_one_record_late,
    believes_old_marks,
]


@pytest.mark.soak
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(30))
