"""Stories of members that each have another start: what the first one began with holds for all of them."""

import json
import os
from datetime import timedelta
from random import Random
from typing import Any, Literal

import pytest
from tests.unit.client.consumer_checks import Violation
from tests.unit.client.consumer_story import Story
from tests.unit.client.scripted import Broker, install

from penstock.client.consuming.beginning import Beginning
from penstock.client.consuming.commits import Commits, Plan

SEEDS = max(int(os.environ.get("PENSTOCK_SDK_SEEDS", "60")) // 2, 1)
Semantics = Literal["at-least-once", "at-most-once"]
FIRST = pytest.mark.parametrize("first", ["earliest", 0, {0: 0, 1: 0, 2: 0, 3: 0}], ids=str)


class MixedStory(Story):
    """The group begins at the first messages, said in one of three ways; from then on a member may begin anywhere."""

    def __init__(self, seed: int, broker: Broker, delivery: Semantics, first: Any) -> None:
        self._first, self._choice = first, Random(f"starts {seed}")
        super().__init__(seed, broker, delivery)

    def _open(self) -> None:
        self._at_end, self._offset = False, 0
        choices = [self._first, "latest", timedelta(0)]
        self._options["start"] = self._choice.choice(choices) if self._group_began() else self._first
        super()._open()
        self._begins.clear()

    def _note(self) -> str:
        return json.dumps({"began_with": 0})


def harm(seed: int, delivery: Semantics, first: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    broker = Broker()
    install(broker, monkeypatch.setattr)
    try:
        MixedStory(seed, broker, delivery, first).tell()
    except Violation as error:
        return f"seed {seed}: {error}"
    return ""


@FIRST
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_nothing_is_passed_over_whatever_start_the_next_member_has(
    first: Any, delivery: Semantics, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [harm(seed, delivery, first, monkeypatch) for seed in range(SEEDS)]
    assert not any(found), next(filter(None, found))


@FIRST
def test_it_finds_commits_that_do_not_say_where_the_group_began(
    first: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Beginning.__init__

    def silent(beginning: Beginning, plan: Plan, retries: Any, commits: Commits) -> None:
        honest(beginning, plan, retries, commits)
        commits.default_note = ""

    monkeypatch.setattr(Beginning, "__init__", silent)
    monkeypatch.setattr(Beginning, "untold", property(lambda _: {}, lambda *_: None), raising=False)
    assert any(harm(seed, "at-least-once", first, monkeypatch) for seed in range(5 * SEEDS))
