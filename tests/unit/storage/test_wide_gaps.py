"""A gap of more offsets than a segment can count, and what is known of those who wrote before it."""

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
from tests.unit.storage.test_replicated import batch_at

from penstock.records.batch import read_header
from penstock.storage.log import Log
from penstock.storage.recovery import open_log
from penstock.storage.replicated import append_replicated, truncate
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles


def log_whose_first_batch_retention_took(
    files: MemFiles, settings: Settings, far: int, *, checkpoint: bool = True
) -> Log:
    """A producer wrote it. Behind it is a gap, up to one more batch."""
    log = opened(files, settings).log
    append(log, a_batch(producer=(7, 0, 0)), epoch=1)
    log.roll(NOW_MS)
    sync(log, checkpoint=True)
    deletion = log.expire(RetentionLimits(retention_bytes=0), log.end_offset, NOW_MS)
    assert deletion is not None
    deletion.hide()
    log.hidden(deletion)
    sync(log, checkpoint=checkpoint)
    append_replicated(log, batch_at(far), NOW_MS, starts=[(1, 0)])
    sync(log)
    return log


@pytest.mark.parametrize("kills", [1, 2])
def test_behind_it_a_log_still_knows_producers_of_what_retention_took(kills: int) -> None:
    """The recovery point names the empty segment before the gap, which is gone."""
    files, settings, far = MemFiles(), Settings(compacts=True), 2**32 + 5
    log_whose_first_batch_retention_took(files, settings, far)
    for _ in range(kills):
        log = open_log(files := files.kill(), DIRECTORY, settings, has_laggards=True).log
    assert (log.start_offset, log.end_offset, log.is_incomplete) == (1, far + 1, False)
    assert [header.base_offset for header in read_everything(log)] == [far]
    assert log.find_repeat(read_header(a_batch(producer=(7, 0, 0)))) is not None


@pytest.mark.parametrize("end", [1, 2, 100, 2**32 + 4, 2**32 + 5])
@pytest.mark.parametrize("only_copy", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_nor_does_it_forget_them_when_it_is_cut_within_the_gap(
    end: int, only_copy: bool, checkpoint: bool
) -> None:
    files, settings = MemFiles(), Settings(compacts=True)
    log = log_whose_first_batch_retention_took(files, settings, 2**32 + 5, checkpoint=checkpoint)
    truncate(log, end)
    recovered = open_log(files.kill(), DIRECTORY, settings, has_laggards=True, only_copy=only_copy)
    log = recovered.log
    assert (log.end_offset, log.is_incomplete, recovered.lost) == (end, False, None)
    assert log.find_repeat(read_header(a_batch(producer=(7, 0, 0)))) is not None


@pytest.mark.parametrize("end", [1, 28, 2**32])
@pytest.mark.parametrize("only_copy", [False, True])
def test_a_cut_before_its_first_batch_misses_no_epochs(end: int, only_copy: bool) -> None:
    """Of a new follower, which has made no checkpoint yet."""
    files, settings = MemFiles(), Settings(compacts=True)
    log = opened(files, settings).log
    append_replicated(log, batch_at(2**32 + 5), NOW_MS, starts=[(1, 0)])
    sync(log)
    truncate(log, end)
    recovered = open_log(files.kill(), DIRECTORY, settings, has_laggards=True, only_copy=only_copy)
    assert (recovered.log.end_offset, recovered.log.is_incomplete, recovered.lost) == (end, False, None)
