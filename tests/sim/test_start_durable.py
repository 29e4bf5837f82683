"""No step of a broker's start, of its stop, or of a change of topics goes by what is not durable: see `start_story`."""

import logging
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple, Self
from unittest.mock import patch

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.journal_store import JournalStore
from tests.sim.start_fuse import Fuse
from tests.sim.start_story import COMPACTED, ROBBED, WIDE, Prepared, StartStory

from penstock.services.hosting import log_opening as opening
from penstock.storage import recovery
from penstock.storage.data_dir import DataDir
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_START_SEEDS", "3"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))


@cache
def prepared(how: str) -> Prepared:
    """A disk with all kinds of topics on it, as a stop or a kill left it; `bare`, with none; or `robbed` of files."""
    with SimLoop(7) as loop:
        story = StartStory(loop)
        story.start()
        if how == "bare":
            story.stop()
            story.kill()
            return story.prepared()
        if how == "robbed":
            story.do(story.create(ROBBED, 1))
            for _ in range(6):
                story.write()
            story.stop()
            story.kill()
            story.rob()
            return story.prepared()
        for name, count, configs in (
            ("wide", WIDE, {}),
            ("gone", 2, {}),
            ("again", 1, {}),
            ("regrown", 2, {}),
            ("keyed", 1, COMPACTED),
            ("loose", 1, {"penstock.ack.after": "written"}),
        ):
            story.do(story.create(name, count, configs))
        story.write()
        story.do(story.delete("again"))
        story.do(story.create("again", 1))
        story.do(story.shrink("regrown"))
        story.do(story.grow("regrown"))
        story.bury_key()
        if how == "stopped":
            story.stop()
        story.kill()
        return story.prepared()


async def change_topics(story: StartStory) -> None:
    """In any order: where many partitions are made, all that went before becomes durable."""

    async def make() -> None:
        await story.create("new", WIDE)

    async def make_again(name: str, partitions: int) -> None:
        await story.delete(name)
        await story.create(name, partitions)

    async def make_partition_again() -> None:
        await story.shrink("regrown")
        await story.grow("regrown")

    steps = [
        make,
        partial(make_again, "gone", 2),
        partial(make_again, "wide", WIDE + 1),
        make_partition_again,
        partial(story.delete, "again"),
    ]
    story.rng.shuffle(steps)
    for step in steps:
        await step()


def any_start(story: StartStory, fuse: Callable[[], Fuse]) -> Fuse:
    story.start(lit := fuse())
    return lit


def changes(story: StartStory, fuse: Callable[[], Fuse]) -> Fuse:
    story.start()
    story.do(change_topics(story), lit := fuse())
    return lit


def a_topic(story: StartStory, fuse: Callable[[], Fuse]) -> Fuse:
    story.start()
    story.do(story.create("narrow", 1), lit := fuse())
    return lit


def a_deletion(story: StartStory, fuse: Callable[[], Fuse]) -> Fuse:
    story.start()
    story.do(story.delete("wide"), lit := fuse())
    return lit


def a_stop(story: StartStory, fuse: Callable[[], Fuse]) -> Fuse:
    story.start()
    story.write()
    story.stop(lit := fuse())
    return lit


Act = Callable[[StartStory, Callable[[], Fuse]], Fuse]
ACTS: dict[str, tuple[str | None, Act]] = {
    "the first start": (None, any_start),
    "a start after a stop": ("stopped", any_start),
    "a start after a kill": ("killed", any_start),
    "a start after a loss": ("robbed", any_start),
    "a topic": ("bare", a_topic),
    "a deletion": ("stopped", a_deletion),
    "changes of topics": ("stopped", changes),
    "a stop": ("stopped", a_stop),
}


class Fault(NamedTuple):
    """What happens at which operation of an act."""

    kind: str  # kill, cut (the power), error
    at: int

    def light(self, story: StartStory) -> Fuse:
        return Fuse(story.files, self.at, fails=self.kind == "error")

    def strike(self, story: StartStory) -> None:
        """The process is gone now."""
        if self.kind == "cut":
            story.power_cut()
        else:
            story.kill()


class Losses(logging.Handler):
    """Those that any process has told."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told = 0

    def __enter__(self) -> Self:
        logging.getLogger(opening.__name__).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(opening.__name__).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.told += "HAS LOST" in record.msg


def tell(name: str, seed: int, fault: Fault, then: Fault | None = None) -> bool:
    """One story; False: there is no such operation any more. `then` happens to the next start, if it comes so far."""
    base, act = ACTS[name]
    with SimLoop(seed) as loop, Losses() as losses:
        if fault.kind == "error":
            loop.set_exception_handler(lambda *_: None)
        story = StartStory(loop, None if base is None else prepared(base))
        lit = act(story, lambda: fault.light(story))
        if not lit.blown:
            return False
        if fault.kind != "error" or act is a_stop:
            fault.strike(story)
            if then is not None:
                story.start(then.light(story))
                then.strike(story)
            story.start()
        story.check()
        if not story.places():
            story.do(story.create("narrow", 1))
        story.write()
        story.power_cut()
        story.start()
        story.check()
        story.write()
        if base == "robbed" and not losses.told:
            raise Violation("a loss was never told")
        return True


SECOND_AT_MAX = 100  # operations of a start

# The first of a process, and what may happen to the next start.
COMBINED = [("kill", None), ("kill", "kill"), ("kill", "cut"), ("cut", None), ("error", None)]


def sweep(act: str, kind: str, then: str | None, seed: int) -> Iterator[tuple[Fault, Fault | None]]:
    """All operations of an act, until there are no more."""
    rng = Random(f"{act}/{kind}/{then}/{seed}")
    at, more = 0, True
    while more:
        fault, second = Fault(kind, at), then and Fault(then, rng.randrange(SECOND_AT_MAX))
        yield fault, second or None
        more = tell(act, seed, fault, second or None)
        at += 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize(("kind", "then"), COMBINED)
@pytest.mark.parametrize("act", ACTS)
def test_nothing_is_gone_by_that_is_not_durable(act: str, kind: str, then: str | None, seed: int) -> None:
    for fault, second in sweep(act, kind, then, seed):
        print(act, seed, fault, second)


@pytest.mark.parametrize("at", range(1, 4))
def test_directories_that_a_killed_first_start_made_are_there_for_good(at: int) -> None:
    assert tell("the first start", 2, Fault("kill", at))


@pytest.mark.parametrize("at", [8, 17, 18])
def test_a_partition_that_could_not_be_opened_at_once_is_no_less_durable(at: int) -> None:
    for seed in range(3):
        assert tell("a topic", seed, Fault("error", at))


@pytest.mark.parametrize(
    ("act", "fault", "then"),
    [
        ("a start after a stop", Fault("kill", 13), None),
        ("a start after a kill", Fault("kill", 40), Fault("cut", 60)),
        ("changes of topics", Fault("kill", 69), Fault("cut", 67)),
        ("changes of topics", Fault("error", 200), None),
        ("a stop", Fault("cut", 100), None),
    ],
)
def test_some_of_the_long_form(act: str, fault: Fault, then: Fault | None) -> None:
    assert tell(act, 0, fault, then)


@pytest.mark.parametrize("kind", ["kill", "cut", "error"])
def test_a_loss_is_told_and_producers_go_on_whatever_stops_the_start_that_finds_it(kind: str) -> None:
    assert len(list(sweep("a start after a loss", kind, None, 0))) > 20


# -- planted bugs that must be found ---------------------------------------------------------------------------


def _unsynced_open(data_dir: DataDir, honest: Callable[[DataDir], None] = DataDir.open) -> None:
    with (
        patch.object(MemFiles, "sync_all", lambda *_: None),
        patch.object(MemFiles, "sync_dir", lambda *_: None),
    ):
        honest(data_dir)


def _always_vouched(
    data_dir: DataDir, *rest: Any, vouched: bool, honest: Any = opening.open_all, **named: Any
) -> Any:
    return honest(data_dir, *rest, vouched=data_dir.was_clean, **named)


_UNSYNCED = (DataDir, "open", _unsynced_open)
PLANTED = {
    # Where a start syncs all there is, that goes for the store's file, too.
    "the store does not settle": ([(JournalStore, "settles", False), _UNSYNCED], "a deletion", "kill", "cut"),
    "a clean stop is not forgotten": ([_UNSYNCED], "a start after a stop", "kill", None),
    "directories may go again": ([_UNSYNCED], "the first start", "kill", None),
    "a loss is not noted": ([(recovery, "note_lost", lambda *_: None)], "a start after a loss", "kill", None),
    "a second try is vouched for": ([(opening, "open_all", _always_vouched)], "a topic", "error", None),
}


@pytest.mark.soak
@pytest.mark.parametrize("bug", PLANTED)
def test_it_finds_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, act, kind, then = PLANTED[bug]
    for how in ("bare", "stopped", "robbed"):
        prepared(how)
    for owner, name, planted in patches:
        monkeypatch.setattr(owner, name, planted)
    for seed in range(20):
        try:
            for fault, second in sweep(act, kind, then, seed):
                last = fault, second
        except Violation as violation:
            print(f"found by seed {seed}, {last}: {violation}")
            return
    pytest.fail(f"{bug}: not found")
