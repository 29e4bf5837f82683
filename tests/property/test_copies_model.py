"""Whole copies are never given up for those that are only registered: one partition, the real decisions, any order.

Brokers lose their power without a word, are killed, stopped and expired, logs fail, replicas move and moves are taken
back, the minimum of in-sync replicas changes, news and requests are late or lost, files go from brokers that are away.
Whoever leads has everything committed, and when all are back everything goes on.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain

import pytest
from tests.property import copies_planted
from tests.property.copies_losing import LosingModel
from tests.property.copies_model import LostError, Model
from tests.property.copies_replica import Replica

from penstock.controller import election, moves
from penstock.controller.election import ReplicaEnd
from penstock.coordination.nodes import PartitionState
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.leading import Leading

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "300"))
CHAPTERS = 12
PLANT_SEEDS_MAX = 10_000

Plant = Callable[[pytest.MonkeyPatch], None]


def test_nothing_committed_is_lost_and_the_partition_goes_on() -> None:
    for seed in range(EXAMPLES):
        try:
            Model(seed).tell(CHAPTERS)
        except LostError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_nor_where_files_go_behind_the_back_of_brokers() -> None:
    for seed in range(EXAMPLES):
        try:
            LosingModel(seed).tell(CHAPTERS)
        except LostError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def forgets_who_was_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "react", copies_planted.forget_who_was_in_sync())


def forgets_who_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "react", copies_planted.forget_who_stops())


def forgets_who_was_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "react", copies_planted.forget_who_was_eligible())


def cancels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "cancel", copies_planted.cancel_at_once)


def finishes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "grown", copies_planted.finish_without_a_word)
    monkeypatch.setattr(moves, "hand_over", lambda state, world: state)


def vouches_for_page_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is left asks for itself before what was acknowledged is durable there."""
    monkeypatch.setattr(Replica, "vouches", True)


def vouches_for_a_log_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader gives up others that have everything, and finds less when it opens its log again."""

    def has_all(replica: Replica) -> bool:
        end = replica.synced if replica.syncs else len(replica.records)
        return end >= max(replica.high_watermark, replica.epoch_start)

    monkeypatch.setattr(Replica, "vouches", property(has_all))


def asks_again_with_a_log_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had everything when it asked first, and the controller never heard of that."""
    monkeypatch.setattr(IsrKeeper, "_again", lambda keeper, partition, leading, pending: pending)


def gives_up_others_for_who_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the most may have died since it told so."""
    honest = election.lead_by_log_end

    def trusting(state: PartitionState, ends: Mapping[int, ReplicaEnd]) -> PartitionState | None:
        after = honest(state, ends)
        return after and replace(after, suspects=())

    monkeypatch.setattr(election, "lead_by_log_end", trusting)


def takes_all_for_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with a hole leads by its end."""
    monkeypatch.setattr(Replica, "end", lambda replica: honest_end(replica)._replace(is_complete=True))


honest_end = Replica.end


def takes_any_that_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fell behind long ago, or is new, comes before those that were in sync and may lack something."""

    def complete_first(state: PartitionState, ends: Mapping[int, ReplicaEnd]) -> int:
        return max(ends, key=lambda broker: (ends[broker].is_complete, *ends[broker]))

    monkeypatch.setattr(election, "has_most", complete_first)


def forgets_what_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart finds a log that looks whole."""
    honest = Model.start

    def start(model: Model, replica: Replica) -> None:
        replica.incomplete = False
        honest(model, replica)

    monkeypatch.setattr(Model, "start", start)


def lets_in_what_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its end alone."""

    def fetched(replica: Replica, state: PartitionState, leading: Leading, leader_end: int) -> None:
        leading.fetched(replica.number, replica.epoch, len(replica.records), leader_end, replica.world.now)

    monkeypatch.setattr(Replica, "_complete", fetched)


PLANTED: list[tuple[Plant, list[int]]] = [
    (forgets_who_was_in_sync, [37, 123, 132]),
    (forgets_who_stops, [37, 123, 132]),
    (forgets_who_was_eligible, [92, 564, 686]),
    (cancels_at_once, [653, 1320, 1433]),
    (finishes_by_itself, [38, 59, 80]),
    (vouches_for_page_caches, [80, 190, 308]),
    (vouches_for_a_log_that_failed, [691, 1572, 2117]),
    (asks_again_with_a_log_that_failed, [22984, 37810]),
    (gives_up_others_for_who_told, [3279, 5060]),
]


@pytest.mark.parametrize(("plant", "found"), PLANTED, ids=lambda bug: getattr(bug, "__name__", ""))
def test_a_planted_bug_is_found(plant: Plant, found: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seeds that found it; by others when the dice fall differently."""
    plant(monkeypatch)
    assert any(goes_wrong(seed) for seed in chain(found, range(PLANT_SEEDS_MAX)))


LOSING = [
    takes_all_for_complete,
    takes_any_that_is_complete,
    forgets_what_is_incomplete,
    lets_in_what_is_incomplete,
]  # found by seeds 4, 11, 4 and 0


@pytest.mark.parametrize("plant", LOSING, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_where_files_go(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(seed, LosingModel) for seed in range(PLANT_SEEDS_MAX))


def goes_wrong(seed: int, model: type[Model] = Model) -> bool:
    try:
        model(seed).tell(CHAPTERS)
    except LostError:
        return True
    return False
