"""A run that goes on for ever: what does not end it, and what it says again."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.spark.archive.faulty import TOPIC
from tests.unit.spark.archive.faulty_lake import Steps
from tests.unit.spark.archive.test_archive_steps import SETTINGS, World

from penstock.spark.pipelines.archive import run as running
from penstock.spark.pipelines.archive.failures import BrokerLostError, ReadLostError
from penstock.spark.pipelines.archive.rounds import Rounds
from penstock.spark.pipelines.archive.run import Job, Logged

JOB = Job(("orders",), "memory:lake", "b:1", None, None, "local", {}, {}, True, "zstd", None, 1, 1)
LOOKS = 20


class Status:
    def update(self, **_: object) -> None:
        pass


class Every(threading.Event):
    """Time passes at once; so many looks are enough."""

    def __init__(self, each: Callable[[int], None]) -> None:
        super().__init__()
        self._each = each
        self._looks = 0

    def wait(self, _: float | None = None) -> bool:
        self._looks += 1
        self._each(self._looks)
        return self._looks == LOOKS


class Summary:
    rows = 0

    def __init__(self, _: str) -> None:
        self.add: Any = lambda _: None
        self.finish: Any = lambda *_: None


def go(
    world: World, patch: pytest.MonkeyPatch, *, every_s: float | None, each: Callable[[int], None]
) -> None:
    patch.setattr(running, "Summary", Summary)
    world.lake.steps = world.broker.steps = Steps()
    rounds = Rounds(
        None,  # type: ignore[arg-type]
        world.lake,
        world.broker,  # type: ignore[arg-type]
        SETTINGS,
        still_owner=lambda: None,
        warn=lambda line: None,
    )
    job = replace(JOB, every_s=every_s)
    running._Run(job, rounds, Logged(), Every(each), Status()).run()  # type: ignore[arg-type]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_the_broker_did_not_take_is_told_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing new is written: retention waits for it."""
    tell, tries = world.broker.tell, []

    def refused(*told: Any) -> list[str]:
        tries.append(told)
        return ["LEADER_NOT_AVAILABLE"] if len(tries) < 12 else tell(*told)

    monkeypatch.setattr(world.broker, "tell", refused)
    go(world, monkeypatch, every_s=1.0, each=lambda _: None)
    assert world.broker.told == {0: (10, 3), 1: (10, 3)}
    assert len(tries) == 12, "and then it is quiet"


def test_what_a_leader_lowered_is_told_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TELL_SECONDS", 0.0)
    go(world, monkeypatch, every_s=1.0, each=lambda look: world.broker.told.clear() if look == 5 else None)
    assert world.broker.told == {0: (10, 3), 1: (10, 3)}


def test_a_topic_that_goes_while_it_is_archived_does_not_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ReadLostError("there is no topic b")

    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "_check_ids", gone)
        with pytest.raises(ReadLostError):
            go(world, monkeypatch, every_s=None, each=lambda _: None)
        go(world, monkeypatch, every_s=1.0, each=lambda look: patch.undo() if look == 3 else None)
    world.check()


def test_nor_does_one_that_goes_just_before_the_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    go(world, monkeypatch, every_s=None, each=lambda _: None)
    world.broker.grow(0, 12, 3)
    with monkeypatch.context() as patch:
        ids = world.broker.ids

        def then_gone(names: Iterable[str]) -> dict[str, str]:
            patch.setattr(world.broker, "find", lambda: ({}, [TOPIC]))
            return ids(names)

        patch.setattr(world.broker, "ids", then_gone)
        go(world, monkeypatch, every_s=1.0, each=lambda look: patch.undo() if look == 3 else None)
    world.check()


def test_a_run_that_ends_says_what_it_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.broker.unled.add(1)
    with pytest.raises(BrokerLostError, match="orders-1: no leader answers; everything else is archived"):
        go(world, monkeypatch, every_s=None, each=lambda _: None)
    assert world.broker.told == {0: (10, 3)}


def test_also_what_has_a_leader_again_in_the_middle_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it ended when the run began nobody could say, so nothing of it was taken."""
    world.broker.unled.add(1)
    world.broker.meanwhile["planned"] = world.broker.unled.clear
    with pytest.raises(BrokerLostError, match="orders-1: no leader answers"):
        go(world, monkeypatch, every_s=None, each=lambda _: None)
    assert not world.broker.meanwhile
    go(world, monkeypatch, every_s=None, each=lambda _: None)
    world.check()
