"""The seeded story of a producer, and bugs that it must find."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
from tests.unit.client.producer_story import Story
from tests.unit.client.scripted_producer import install

from penstock.client import delivery, polling
from penstock.client.delivery import Delivery
from penstock.client.polling import Pump

FIRST = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "60"))
PLANTED_SEEDS = 200


def tell(seed: int, patch: Callable[[str, Any], None]) -> None:
    Story(seed, install(patch, Random(seed))).run()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (polling, delivery):
        monkeypatch.setattr(module.logger, "disabled", True)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_outcomes_are_known_and_failures_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(seed, monkeypatch.setattr)


def interrupted_in_reports(patch: Callable[[Any, str, Any], None]) -> None:
    patch(polling, "Undisturbed", nullcontext)


def ended_by_what_raises_in_a_poll(patch: Callable[[Any, str, Any], None]) -> None:
    def poll(pump: Pump, call: Callable[[float], object], seconds: float) -> None:
        try:
            call(seconds)
        finally:
            pump._polling.release()

    patch(Pump, "_poll", poll)


def told_to_closed_loops(patch: Callable[[Any, str, Any], None]) -> None:
    def notify(sent: Delivery) -> None:
        watchers, sent._watchers = sent._watchers, None
        for watcher in watchers or ():
            watcher()

    patch(Delivery, "_notify", notify)
    patch(Delivery, "_unwatch", lambda *_: None)


def silent_beyond_those_kept(patch: Callable[[Any, str, Any], None]) -> None:
    real = Pump._tell_failures

    def tell_failures(pump: Pump) -> None:
        if not pump._failures:
            pump._failures_total = 0
        real(pump)

    def note_failure(pump: Pump, awaited: polling.Awaited) -> None:
        awaited.untold = pump._telling
        pump._failures_total += 1
        if len(pump._failures) < polling._FAILURES_KEPT:
            pump._failures.append(awaited)

    patch(Pump, "_tell_failures", tell_failures)
    patch(Pump, "note_failure", note_failure)


PLANTED = [
    interrupted_in_reports,
    ended_by_what_raises_in_a_poll,
    told_to_closed_loops,
    silent_beyond_those_kept,
]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[Callable[[Any, str, Any], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch.setattr)
    for seed in range(PLANTED_SEEDS):
        try:
            tell(seed, monkeypatch.setattr)
        except (Exception, KeyboardInterrupt) as error:
            print(f"{plant.__name__}: seed {seed}: {error!r}")
            return
    pytest.fail(f"{plant.__name__} was not found")
