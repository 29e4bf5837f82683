"""Two archivers of one lake: the first falls asleep at any step, and goes on as if nothing had been (A4).

Meanwhile the second has taken over, and was killed at a step of its own. Whatever the first does then, a run that
nothing disturbs finds everything in the lake once: in a folder, and on S3, where a move is a copy and a deletion, also
with a manifest that was restored and knows nothing of files that are there, and with tasks of Spark that write late.
"""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.unit.spark.archive import test_archive_steps
from tests.unit.spark.archive.faulty_lake import FAULTS, KilledError, MemoryLake, Steps
from tests.unit.spark.archive.faulty_s3 import MemoryLakeOnS3
from tests.unit.spark.archive.test_archive_steps import World, steps_of_a_run

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive import committing, compaction, manifest, rounds
from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import LakeError
from penstock.spark.pipelines.archive.manifest import STAGING, Manifest

SEEDS = 300


@dataclass
class Sleeps(Steps):
    """One who sleeps at a step for as long as `meanwhile` takes."""

    meanwhile: Callable[[], None] = lambda: None

    def _pass(self, name: str) -> None:
        super()._pass(name)
        if len(self.names) - 1 == self.at:
            self.meanwhile()


def restored(world: World) -> set[str]:
    """The manifest as it was before everything; the files that it does not know stay. The broker has all records."""
    world.run(Steps())
    world.broker.starts.clear()
    world.broker.told.clear()
    # Rounds get the numbers again, and take other rows.
    world.broker.grow(0, world.broker.ends()[0] + 3, 3)
    for path in [path for path in world.lake.files if path.startswith(manifest.FOLDER)]:
        del world.lake.files[path]
    return {path for path in world.lake.files if path.startswith("topic=")}


def write_late(world: World, dice: random.Random) -> None:
    """A task that Spark gave up for lost wakes, and writes below the staging of a round that is long committed."""
    world.lake.steps = Steps()
    rounds_done = [entry.round for entry in Manifest.load(world.lake).entries]
    if rounds_done and dice.random() < 0.5:
        attempt = f"{STAGING}/{dice.choice(rounds_done)}/_temporary/0/_temporary/attempt_7"
        world.lake.files[f"{attempt}/topic=orders/date=2026-11-16/hour=10/p.parquet"] = b""


def story(patch: pytest.MonkeyPatch, seed: int, steps: int, lake: type[MemoryLake]) -> None:
    dice = random.Random(seed)
    world = World(patch, lake)
    # With many entries also those of rounds that were compacted since.
    patch.setattr(manifest, "CHECKPOINT_ENTRIES", dice.choice([2, 50]))
    unknown = restored(world) if dice.random() < 0.3 else set()
    # Left by others: a round that is committed and not in its place, perhaps, or files that nobody committed.
    world.run_and_fail(FAULTS["killed"], dice.randrange(steps))
    world.broker.grow(0, world.broker.ends()[0] + 5, 3)

    def taken_over() -> None:
        mine = world.lake.steps
        write_late(world, dice)
        world.run_and_fail(FAULTS["killed"], dice.randrange(steps))
        world.lake.steps = world.broker.steps = mine

    # Most of them within what is recovered.
    sleeps_at = dice.randrange(30 if dice.random() < 0.7 else steps)
    with suppress(PenstockError, FileNotFoundError, KilledError):
        world.run(Sleeps(at=sleeps_at, meanwhile=taken_over))
    write_late(world, dice)
    world.run(Steps())
    world.check(unknown)


def harmful(patch: pytest.MonkeyPatch, lake: type[MemoryLake] = MemoryLake) -> Iterator[str]:
    steps = len(steps_of_a_run(patch))
    for seed in range(SEEDS):
        try:
            story(patch, seed, steps, lake)
        except (AssertionError, PenstockError) as error:
            yield f"seed {seed}: {type(error).__name__} {error}".splitlines()[0]


@pytest.mark.parametrize("lake", [MemoryLake, MemoryLakeOnS3])
def test_one_who_slept_destroys_nothing(lake: type[MemoryLake], monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(harmful(monkeypatch, lake)) == []


def asleep_in_a_move(patch: pytest.MonkeyPatch) -> list[str]:
    """A round is committed and was killed at its move; who finishes that falls asleep, and another one does it all."""
    patch.setattr(compaction, "groups", lambda *_, **__: [])
    world = World(patch, MemoryLakeOnS3)
    restored(world)
    with suppress(LakeError):
        world.run(steps := Steps())
    move = next(at for at, name in enumerate(steps.names) if name.startswith("within move"))
    found = []
    for asleep_at in range(60):
        world = World(patch, MemoryLakeOnS3)
        unknown = restored(world)
        world.run_and_fail(FAULTS["killed"], move)

        def taken_over(world: World = world) -> None:
            mine = world.lake.steps
            world.run(Steps())
            world.lake.steps = world.broker.steps = mine

        with suppress(PenstockError, FileNotFoundError):
            world.run(Sleeps(at=asleep_at, meanwhile=taken_over))
        try:
            world.run(Steps())
            world.check(unknown)
        except (AssertionError, PenstockError) as error:
            found.append(f"asleep at {asleep_at}: {type(error).__name__} {error}".splitlines()[0])
    return found


def test_one_who_slept_in_a_move_destroys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asleep_in_a_move(monkeypatch) == []


def test_it_finds_names_that_come_again_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rounds.archived_files

    def numbered(*args: Any) -> list[ArchivedFile]:
        return [
            replace(file, path=re.sub(r"/(\d{10})-[0-9a-f]{32}-", r"/\1-", file.path)) for file in made(*args)
        ]

    for module in (rounds, compaction):
        monkeypatch.setattr(module, "archived_files", numbered)
    assert any(harmful(monkeypatch, MemoryLakeOnS3))
    assert asleep_in_a_move(monkeypatch)


def test_it_finds_one_who_clears_all_of_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = committing.recover

    def cleared(of: Manifest, **more: object) -> None:
        recover(of, **more)  # type: ignore[arg-type]
        of.lake.delete(STAGING)

    monkeypatch.setattr(rounds, "recover", cleared)
    assert any("is missing, and not in staging either" in line for line in harmful(monkeypatch))


def test_no_progress_is_told_over_a_file_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on without it must not make retention delete what the broker has of it."""
    world = World(monkeypatch)
    monkeypatch.setattr(manifest, "CHECKPOINT_ENTRIES", 100)
    world.run(Steps())
    world.broker.grow(0, 15, 3)
    world.run(Steps())
    assert world.broker.told[0][0] == 15
    gone = max(path for path in world.lake.files if path.startswith("topic="))
    (offsets,) = [file.offsets for file in Manifest.load(world.lake).files.values() if file.path == gone]
    del world.lake.files[gone]
    world.broker.starts |= {at: last for at, (_, last) in offsets.items()}  # retention has left one of them
    monkeypatch.setattr(test_archive_steps, "SETTINGS", rounds.Settings(fail_on_data_loss=False))
    with suppress(PenstockError):
        world.run(Steps())
    assert {at: world.broker.told[at][0] for at in offsets} == {
        at: first for at, (first, _) in offsets.items()
    }


def kept(patch: pytest.MonkeyPatch) -> World:
    """Archived, and the broker has everything still."""
    world = World(patch)
    world.broker.keeps_all = True
    world.run(Steps())
    return world


def test_one_who_slept_tells_nothing_over_a_file_that_another_has_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "groups", lambda *_, **__: [])
    monkeypatch.setattr(test_archive_steps, "SETTINGS", rounds.Settings(fail_on_data_loss=False))
    kept(monkeypatch).run(steps := Steps())
    told_all = []
    for asleep_at, name in enumerate(steps.names):
        world = kept(monkeypatch)

        def missed(world: World = world) -> None:
            mine = world.lake.steps
            del world.lake.files[min(path for path in world.lake.files if path.startswith("topic="))]
            world.run(Steps())
            world.lake.steps = world.broker.steps = mine

        with suppress(PenstockError, FileNotFoundError):
            world.run(Sleeps(at=asleep_at, meanwhile=missed))
        told_all += [name] if world.broker.told[0][0] else []
    assert told_all == []
