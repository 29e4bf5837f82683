"""What an only copy lost is put back while its broker is stopped, after it wrote on: all of it is there then.

Also where only the empty file is gone that a log would write to next: it makes it again, and forgets nothing.
"""

from collections.abc import Callable

import pytest
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW_MS,
    Settings,
    a_batch,
    append,
    opened,
    read_everything,
    sync,
)

from penstock.records.batch import read_header
from penstock.storage.deletion import StartJob
from penstock.storage.layout import LOG, segment_name
from penstock.storage.lost import forget_lost
from penstock.storage.recovery import open_log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

Damage = Callable[[MemFiles, int], None]
END = 10
THREE_EACH = Settings(segment_bytes=3 * len(a_batch()))  # segments from 0, 3, 6 and 9 on


def torn(files: MemFiles, base: int) -> None:
    file = files.open(DIRECTORY / segment_name(base, LOG))
    file.truncate(file.size() // 2)
    file.sync()
    file.close()


def gone(files: MemFiles, base: int) -> None:
    files.unlink(DIRECTORY / segment_name(base, LOG))


@pytest.mark.parametrize("has_laggards", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        {6: gone, 9: gone},
        {6: torn, 9: gone},
        {9: gone},
        {3: torn},
        {3: gone},
        {0: gone, 6: torn},
        {0: gone, 3: gone, 6: gone, 9: gone},
    ],
    ids=["end", "torn end", "last", "torn middle", "middle", "two", "all"],
)
def test_it_is_there_again_beside_what_was_written_since(
    damage: dict[int, Damage], has_laggards: bool
) -> None:
    files = MemFiles(1)
    log = opened(files, THREE_EACH).log
    for _ in range(END):
        append(log, a_batch())
    sync(log, checkpoint=True)
    log.close()
    files = files.kill()
    kept = {base: files.read(DIRECTORY / segment_name(base, LOG)) for base in damage}
    for base, done in damage.items():
        done(files, base)
    files.sync_dir(DIRECTORY)
    log = open_log(files, DIRECTORY, THREE_EACH, only_copy=True, has_laggards=has_laggards).log
    forget_lost(files, DIRECTORY)
    since = [append(log, a_batch()) for _ in range(4)]
    assert since == list(range(END, END + 4))
    sync(log, checkpoint=True)
    log.close()
    files = files.kill()
    for base, data in kept.items():
        files.write_atomically(DIRECTORY / segment_name(base, LOG), data)
    for _ in range(2):
        found = open_log(files, DIRECTORY, THREE_EACH, only_copy=True, has_laggards=has_laggards)
        assert [batch.base_offset for batch in read_everything(found.log)] == list(
            range(found.log.start_offset, END + 4)
        )
        assert found.log.start_offset == 0 or len(damage) == 4
        assert found.set_aside == []
        found.log.close()
        files = files.kill()


@pytest.mark.parametrize("damage", [gone, torn])
@pytest.mark.parametrize("has_laggards", [False, True])
def test_also_where_the_log_starts_within_it(damage: Damage, has_laggards: bool) -> None:
    """An empty segment stands for it, which must not make it one from before the log's start."""
    files = MemFiles(1)
    log = opened(files, THREE_EACH).log
    for _ in range(END):
        append(log, a_batch())
    sync(log, checkpoint=True)
    StartJob(files, DIRECTORY, 1).run()
    log.advance_start(1)
    sync(log, checkpoint=True)
    log.close()
    files = files.kill()
    kept = files.read(DIRECTORY / segment_name(0, LOG))
    damage(files, 0)
    files.sync_dir(DIRECTORY)
    found = open_log(files, DIRECTORY, THREE_EACH, only_copy=True, has_laggards=has_laggards)
    assert found.lost == (1, 3)
    found.log.close()
    files = files.kill()
    files.write_atomically(DIRECTORY / segment_name(0, LOG), kept)
    log = open_log(files, DIRECTORY, THREE_EACH, only_copy=True, has_laggards=has_laggards).log
    assert log.start_offset == 1
    assert [batch.base_offset for batch in read_everything(log)] == list(range(1, END))


@pytest.mark.parametrize("limits", [RetentionLimits(retention_ms=1), RetentionLimits(retention_bytes=400)])
def test_without_the_empty_file_that_comes_next_it_forgets_nothing(limits: RetentionLimits) -> None:
    files = MemFiles(1)
    log = opened(files, THREE_EACH).log
    for number in range(9):
        append(log, a_batch(producer=(7 + number // 3, 0, number % 3)), epoch=number // 3)
    log.roll(NOW_MS)
    sync(log, checkpoint=True)
    deletion = log.expire(limits, log.end_offset, NOW_MS + 10_000)
    assert deletion is not None
    deletion.hide()
    deletion.unlink()
    sync(log, checkpoint=True)
    known = log.start_offset, log.end_offset, log.epochs.entries(), log.producers.copy()
    assert known[3]
    assert not log.active.size
    files = files.kill()
    files.unlink(DIRECTORY / segment_name(log.active.base_offset, LOG))
    files.sync_dir(DIRECTORY)
    found = open_log(files, DIRECTORY, THREE_EACH, has_laggards=True)
    again = found.log
    assert (again.start_offset, again.end_offset, again.epochs.entries(), again.producers.copy()) == known
    assert found.lost is None
    assert not again.is_incomplete
    last = read_header(a_batch(producer=(9, 0, 2)))
    assert again.find_repeat(last) is not None
