"""Bugs that the stories of a follower's log find: each was made here once, or could be."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from tests.property.follower_story import Story

from penstock.core.errors import StorageError
from penstock.core.files import Files
from penstock.storage import recovery
from penstock.storage.checkpoint import SyncJob
from penstock.storage.compaction.checkpoint import Cleaned, CleanedNote, load_cleaned
from penstock.storage.deletion import Deletion
from penstock.storage.log import Log
from penstock.storage.truncation import Truncation

Plant = Callable[[pytest.MonkeyPatch], None]

SEEDS_MAX = 2000


def cuts_by_the_point_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of a checkpoint that ran short behind its rename stays on the disk."""
    honest = Truncation.run

    def run(job: Truncation) -> None:
        job._point_in_doubt = False
        honest(job)

    monkeypatch.setattr(Truncation, "run", run)


def goes_back_to_the_mark_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner's mark whose directory could not be synced stays on the disk, and a cut does not lower it."""

    def note(job: CleanedNote, log: Log, known: Cleaned) -> None:
        job._log, job._known = log, known

    def done(job: CleanedNote) -> None:
        job._log.cleaned = job._known

    monkeypatch.setattr(CleanedNote, "__init__", note)
    monkeypatch.setattr(CleanedNote, "done", done)


def forgets_what_it_could_not_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(log: Log, done: Deletion) -> None:
        log._leaving = []

    monkeypatch.setattr(Log, "hidden", hidden)


def takes_a_read_error_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a damaged mark for one at the end of the log."""

    def load(files: Files, directory: Path, end_offset: int) -> Cleaned:
        try:
            return load_cleaned(files, directory, end_offset)
        except StorageError:
            return Cleaned(tombstones=end_offset, went_by=end_offset)

    monkeypatch.setattr(recovery, "load_cleaned", load)


def syncs_files_that_it_opens_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a write that failed before, whoever opens the file later hears nothing."""
    honest = SyncJob.sync_data

    def sync_data(job: SyncJob) -> None:
        files = [job._files.open(file.path) for file in job.written.files]
        job.written = job.written._replace(files=files)
        honest(job)

    monkeypatch.setattr(SyncJob, "sync_data", sync_data)


PLANTED: list[tuple[Plant, list[int]]] = [
    (cuts_by_the_point_in_memory, [160, 260, 856]),
    (goes_back_to_the_mark_in_memory, [46251]),
    (forgets_what_it_could_not_hide, [328, 145, 175]),
    (takes_a_read_error_for_damage, [203, 713, 796]),
    (syncs_files_that_it_opens_for_that, [0, 1, 5]),
]


@pytest.mark.parametrize(("plant", "found"), PLANTED, ids=lambda bug: getattr(bug, "__name__", ""))
def test_a_planted_bug_is_found(plant: Plant, found: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seeds that found it; by others when the dice fall differently."""
    plant(monkeypatch)
    seed = next(seed for seed in chain(found, range(SEEDS_MAX)) if goes_wrong(seed))
    print(f"found by seed {seed}")


def goes_wrong(seed: int) -> bool:
    try:
        Story(seed).tell()
    except Exception:  # whatever it runs into
        return True
    return False
