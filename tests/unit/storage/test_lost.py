"""A log that lost what was durable says so, and serves producers, whatever stops a start that finds it."""

import random
from collections.abc import Callable

import pytest
from tests.property.log_story import PowerCut, fail_once, interrupt
from tests.unit.storage.logs import DIRECTORY, Settings, a_batch, append, opened, sync

from penstock.core.errors import StorageError
from penstock.records.batch import read_header
from penstock.storage.compaction.checkpoint import Cleaned, save_cleaned
from penstock.storage.layout import EPOCHS_FILE, LOG, LOST, segment_name
from penstock.storage.lost import forget_lost
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

END = 10
SECOND_EPOCH = 7  # the offset at which it begins
PRODUCER = 7
SMALL = Settings(segment_bytes=3 * len(a_batch()))


def half_of_a_batch(files: MemFiles) -> None:
    file = files.open(DIRECTORY / segment_name(9, LOG))
    file.truncate(file.size() // 2)
    file.sync()
    file.close()


def the_last_files(files: MemFiles) -> None:
    for base in (6, 9):
        files.unlink(DIRECTORY / segment_name(base, LOG))
    files.sync_dir(DIRECTORY)


def all_files(files: MemFiles) -> None:
    for base in (0, 3, 6, 9):
        files.unlink(DIRECTORY / segment_name(base, LOG))
    files.sync_dir(DIRECTORY)


TAKEN = [half_of_a_batch, the_last_files, all_files]
# How many offsets are left, from 0 on.
LEFT = {half_of_a_batch: 9, the_last_files: 6, all_files: 0}
STOPS: dict[str, Callable[[MemFiles], MemFiles]] = {
    "kill": MemFiles.kill,
    "cut": lambda files: files.crash(random.Random(1)),
    "error": lambda files: files,
}


def robbed(taken: Callable[[MemFiles], None]) -> MemFiles:
    """A log that was compacted once, and of which somebody took files behind the recovery point."""
    files = MemFiles(1)
    log = opened(files, SMALL).log
    for number in range(END):
        append(log, a_batch(producer=(PRODUCER, 0, number)), epoch=int(number >= SECOND_EPOCH))
    save_cleaned(files, DIRECTORY, Cleaned(END, 0, END))
    sync(log, checkpoint=True)
    log.close()
    taken(files)
    return files.kill()


def start(files: MemFiles, *, only_copy: bool = True, has_laggards: bool = False) -> Recovered:
    return open_log(
        files, DIRECTORY, SMALL, only_copy=only_copy, has_laggards=has_laggards, rewrite_tail=True
    )


@pytest.mark.parametrize("only_copy", [True, False])
@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("taken", TAKEN)
def test_a_loss_is_told_at_whichever_operation_a_start_is_stopped(
    taken: Callable[[MemFiles], None], how: str, only_copy: bool
) -> None:
    for operations in range(1000):
        files = robbed(taken)
        (fail_once if how == "error" else interrupt)(files, operations)
        try:
            found = start(files, only_copy=only_copy)
        except (PowerCut, StorageError):
            files.__dict__.pop("enter", None)
            found = start(STOPS[how](files), only_copy=only_copy)
            assert found.lost == (LEFT[taken], END), operations
        else:
            assert found.lost == (LEFT[taken], END)
            break
    assert operations > 10


@pytest.mark.parametrize("how", ["kill", "cut"])
@pytest.mark.parametrize("taken", TAKEN)
def test_producers_go_on_behind_a_loss_wherever_a_start_was_stopped(
    taken: Callable[[MemFiles], None], how: str
) -> None:
    """They have written more than is known of them, and would be refused for ever."""
    operations, stopped = 0, True
    while stopped:
        files = robbed(taken)
        interrupt(files, operations)
        try:
            start(files)
            stopped = False
        except PowerCut:
            goes_on(start(STOPS[how](files)))
        operations += 1


@pytest.mark.parametrize("how", ["kill", "cut"])
@pytest.mark.parametrize("taken", TAKEN)
def test_the_epochs_of_what_is_lost_are_known_wherever_a_start_was_stopped(
    taken: Callable[[MemFiles], None], how: str
) -> None:
    """Whole replicas, and archives, would seem to part from the log where they began. So it is after the next start."""
    epochs, operations, stopped = [(0, 0), (1, SECOND_EPOCH)], 0, True
    while stopped:
        files = robbed(taken)
        interrupt(files, operations)
        try:
            found = start(files, has_laggards=True)
            stopped = False
        except PowerCut:
            files = STOPS[how](files)
            found = start(files, has_laggards=True)
        assert found.log.epochs.entries() == epochs, operations
        found.log.close()
        assert start(files.kill(), has_laggards=True).log.epochs.entries() == epochs, operations
        operations += 1


def goes_on(found: Recovered) -> None:
    batch = a_batch(producer=(PRODUCER, 0, END))
    assert found.log.find_repeat(read_header(batch)) is None
    assert append(found.log, batch, epoch=1) == END


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("limit", [8, END])
def test_nor_are_they_refused_where_the_partition_is_retired_and_would_begin_at_its_limit(
    taken: Callable[[MemFiles], None], limit: int
) -> None:
    """Which is where a log begins that has no segment at all, and says nothing of what this one had."""
    found = open_log(robbed(taken), DIRECTORY, SMALL, only_copy=True, first_offset=limit)
    assert found.lost == (LEFT[taken], END)
    goes_on(found)


def test_what_was_told_is_not_told_again_and_producers_stay_known() -> None:
    files = robbed(half_of_a_batch)
    found = start(files)
    goes_on(found)
    sync(found.log)
    # Nobody came to tell: what was written since counts nevertheless.
    found = start(files.kill())
    assert found.lost == (9, END)
    assert found.log.find_repeat(read_header(a_batch(producer=(PRODUCER, 0, END)))) is not None
    forget_lost(found.log.files, DIRECTORY)
    after = found.log.files.crash(random.Random(2))  # type: ignore[attr-defined]
    assert start(after).lost is None
    assert not [name for name in after.list_dir(DIRECTORY) if name.endswith(LOST)]


@pytest.mark.parametrize("taken", [the_last_files, all_files])
def test_one_that_lost_its_epochs_with_what_they_are_of_does_not_lead_unasked(
    taken: Callable[[MemFiles], None],
) -> None:
    def with_epochs(files: MemFiles) -> None:
        taken(files)
        files.unlink(DIRECTORY / EPOCHS_FILE)
        files.sync_dir(DIRECTORY)

    assert start(robbed(with_epochs), has_laggards=True).log.is_incomplete
    assert not start(robbed(taken), has_laggards=True).log.is_incomplete
