"""A run of the archive that fails at any of its steps, in any way; then one that nothing disturbs.

After it everything is in the lake exactly once, though the broker deletes what it is told to be archived, and though
the power is cut then.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.unit.spark.archive.faulty import TOPIC, Broker, Jobs
from tests.unit.spark.archive.faulty_lake import FAULTS, Fault, KilledError, MemoryLake, Row, Steps

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive import committing, compaction, manifest, rounds, survey
from penstock.spark.pipelines.archive.errors import ConflictError, LakeError
from penstock.spark.pipelines.archive.lake import HOME
from penstock.spark.pipelines.archive.planning import Bounds, Standing

# Rounds of a few rows each, so that there are several to compact, and checkpoints between them.
SETTINGS = rounds.Settings(bounds=Bounds(rows_max=8))
ROUNDS_MAX = 100
ROWS = [(partition, offset, f"{partition}/{offset}") for partition in range(2) for offset in range(10)]


class World:
    def __init__(self, patch: pytest.MonkeyPatch, lake: type[MemoryLake] = MemoryLake) -> None:
        self.lake = lake(Steps())
        self.owner = self.lake.steps
        self.broker = Broker(self.lake.steps, list(ROWS))
        jobs = Jobs(self.lake, self.broker)
        for module in (rounds, compaction):
            patch.setattr(module, "read_back", jobs.read_back)
        patch.setattr(rounds, "write_round", jobs.write_round)
        patch.setattr(compaction, "_write", jobs.compacted)
        patch.setattr(compaction, "_sum", lambda *_: 0)
        patch.setattr(manifest, "CHECKPOINT_ENTRIES", 2)
        patch.setattr(manifest, "KEPT_ENTRIES", 1)

    def run(self, steps: Steps) -> None:
        """As `archive.run` does it, in a process of its own, which takes the lake over from any other."""
        self.lake.steps = self.broker.steps = self.owner = steps

        def still_owner() -> None:
            if self.owner is not steps:
                raise ConflictError(self.lake.uri)

        running = rounds.Rounds(
            None,  # type: ignore[arg-type]
            self.lake,
            self.broker,  # type: ignore[arg-type]
            SETTINGS,
            still_owner=still_owner,
            warn=lambda line: None,
        )
        running.recover()
        running.tell()
        for _ in range(ROUNDS_MAX):
            if running.run() is None:
                break
            running.tell()
        else:
            raise AssertionError("a run has no end")
        compaction.compact(running, files_max=1)

    def run_and_fail(self, fault: Fault, at: int) -> Steps:
        steps = Steps(fault, at)
        with suppress(PenstockError, KeyboardInterrupt, KilledError):
            self.run(steps)
        if fault.power_cut:
            self.lake.cut_power()
        return steps

    def check(self, unknown: Collection[str] = ()) -> None:
        """What the manifest names is what is there, and that is every record once.

        `unknown`: files of rounds that a restored manifest does not know.
        """
        self.check_data(unknown)
        assert not [path for path in self.lake.files if path.startswith(manifest.STAGING)]

    def check_data(self, unknown: Collection[str] = ()) -> None:
        """As readers see it, who know nothing of staging."""
        self.lake.steps = Steps()
        archive = manifest.Manifest.load(self.lake).topic(TOPIC)
        assert archive is not None
        there = {path for path in self.lake.files if not path.startswith(HOME)}
        assert sorted(archive.files) == sorted(there - (set(unknown) - archive.files.keys()))
        assert sorted(self.archived()) == sorted(self.broker.rows)

    def archived(self) -> list[Row]:
        """The rows that count, by both of what readers go by."""
        archive = manifest.Manifest.load(self.lake).topic(TOPIC)
        assert archive is not None
        found = []
        for path, file in archive.files.items():
            rows = self.lake.rows(path)
            counting = [row for row in rows if row[1] < file.limits.get(row[0], row[1] + 1)]
            spans = {at: range(first, last + 1) for at, (first, last) in file.offsets.items()}
            assert counting == [row for row in rows if row[1] in spans.get(row[0], ())]
            found += counting
        return found


def new(patch: pytest.MonkeyPatch) -> World:
    return World(patch)


def parted(patch: pytest.MonkeyPatch) -> World:
    """Archived, compacted and deleted at the broker; then one log has lost its end twice, the other all of it."""
    world = World(patch)
    world.run(Steps())
    world.broker.lose_end(0, 9, 14, epoch=4)
    world.broker.lose_end(0, 7, 16, epoch=6)
    world.broker.lose_end(1, 0, 5, epoch=5)
    return world


STORIES = {"new": new, "parted": parted}


def steps_of_a_run(patch: pytest.MonkeyPatch, story: str = "new") -> list[str]:
    world, steps = STORIES[story](patch), Steps()
    world.run(steps)
    world.check()
    return steps.names


def walk(patch: pytest.MonkeyPatch, fault: Fault, story: str = "new") -> list[str]:
    """The steps at which the fault does harm."""
    harmful = []
    for at, name in enumerate(steps_of_a_run(patch, story)):
        world = STORIES[story](patch)
        world.run_and_fail(fault, at)
        try:
            world.run(Steps())
            world.lake.cut_power()
            world.check_data()
            world.run(Steps())
            world.check()
        except (AssertionError, PenstockError) as error:
            harmful.append(f"step {at}, {name}: {type(error).__name__} {error}".splitlines()[0])
    return harmful


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_may_fail_at_any_step(fault: str, story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert walk(monkeypatch, FAULTS[fault], story) == []


def test_a_run_has_the_steps_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the walk above would pass by what it is for."""
    names = steps_of_a_run(monkeypatch)
    for wanted in (
        "after create _penstock/manifest",
        "before list _penstock/manifest",
        "after move to",
        "after tell",
        "after replace _penstock/manifest/checkpoint",
        "before delete topic=orders",  # replaced by a compaction
    ):
        assert [name for name in names if name.startswith(wanted)], wanted


# -- planted: the walk must find them ---------------------------------------------------------------------------


def test_it_finds_staging_removed_behind_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(of: manifest.Manifest, entry: manifest.Entry) -> None:
        try:
            of.commit(entry)
        except BaseException:
            of.lake.delete(f"{manifest.STAGING}/{entry.round}")
            raise
        committing.put_in_place(of.lake, entry)
        of.tidy()

    monkeypatch.setattr(rounds, "commit", commit)
    for fault in ("error", "Ctrl-C"):
        found = walk(monkeypatch, FAULTS[fault])
        assert any("after create _penstock/manifest/0000000001.json" in line for line in found), fault
        assert any("before list _penstock/manifest" in line for line in found), fault
    monkeypatch.undo()
    monkeypatch.setattr(compaction, "commit", commit)
    assert any("after create" in line for line in walk(monkeypatch, FAULTS["Ctrl-C"]))


def test_it_finds_files_that_are_not_synced_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLake, "sync", lambda lake, paths: None)
    assert walk(monkeypatch, FAULTS["power cut"])


def test_it_finds_removals_that_a_checkpoint_forgets_and_a_power_cut_undoes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryLake, "sync_removed", lambda lake, paths: None)
    assert walk(monkeypatch, FAULTS["power cut"])


def test_it_finds_progress_told_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committing.commit

    def told_first(of: manifest.Manifest, entry: manifest.Entry) -> None:
        for taken in entry.topics:
            ends = {partition: end for partition, (_, end) in taken.partitions.items()}
            told.broker.tell({TOPIC: ("-", ends)}, {})
        commit(of, entry)

    told: World
    made = World.__init__

    def remembered(world: World, patch: pytest.MonkeyPatch) -> None:
        nonlocal told
        made(world, patch)
        told = world

    monkeypatch.setattr(World, "__init__", remembered)
    monkeypatch.setattr(rounds, "commit", told_first)
    assert any("before create" in line for line in walk(monkeypatch, FAULTS["killed"]))


def test_it_finds_old_files_removed_before_the_compaction_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = committing.commit

    def removed_first(of: manifest.Manifest, entry: manifest.Entry) -> None:
        for path in entry.removed:
            of.lake.delete(path)
        commit(of, entry)

    monkeypatch.setattr(compaction, "commit", removed_first)
    assert any("before create" in line for line in walk(monkeypatch, FAULTS["Ctrl-C"]))


def test_it_finds_a_checkpoint_before_the_files_are_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(of: manifest.Manifest, entry: manifest.Entry) -> None:
        of.commit(entry)
        of.tidy()
        committing.put_in_place(of.lake, entry)

    monkeypatch.setattr(rounds, "commit", commit)
    assert any("move to" in line for line in walk(monkeypatch, FAULTS["killed"]))


def test_it_finds_what_was_archived_of_a_lost_log_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    below = manifest.ArchivedFile.below
    monkeypatch.setattr(manifest.ArchivedFile, "below", lambda file, *_: file)
    with pytest.raises(AssertionError):
        steps_of_a_run(monkeypatch, "parted")
    # Or merged with what came in its place.
    monkeypatch.setattr(manifest.ArchivedFile, "below", below)
    groups = compaction.groups
    monkeypatch.setattr(
        compaction,
        "groups",
        lambda files, **more: groups([replace(file, limits={}) for file in files], **more),
    )
    with pytest.raises((AssertionError, LakeError)):
        steps_of_a_run(monkeypatch, "parted")


def test_it_finds_a_log_that_is_never_gone_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "standing", lambda *_: Standing())
    with pytest.raises(AssertionError):
        steps_of_a_run(monkeypatch, "parted")
