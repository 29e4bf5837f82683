"""A log that an I/O error took offline says so to everyone, also to a producer that repeats itself."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import read_header
from penstock.testing.mem_files import MemFiles


def test_a_repeat_is_refused_because_what_it_repeats_may_be_lost() -> None:
    log = opened(MemFiles()).log
    batch = a_batch(producer=(7, 0, 0))
    append(log, batch)
    header = read_header(batch)
    assert log.find_repeat(header) is not None
    log.sync_failed()
    with pytest.raises(ApiError) as refused:
        log.find_repeat(header)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_batches_held_back_that_cannot_be_written_take_the_log_offline() -> None:
    files = MemFiles()
    log = opened(files).log
    batch = memoryview(bytearray(a_batch()))
    log.append(batch, read_header(batch), 0, NOW_MS, hold=True)
    files.fill_up(0)
    with pytest.raises(ApiError) as refused:
        log.write_out()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.make_room()
    with pytest.raises(ApiError):
        log.sync_job()
