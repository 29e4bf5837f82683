"""A log that an I/O error took offline says so to everyone, also to a producer that repeats itself."""

import random

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened, read, read_everything

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError
from penstock.records.batch import check_batch, read_header
from penstock.storage.scan import Scan
from penstock.storage.segment import Segment
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


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "memory is short"])
def test_what_is_written_once_more_is_what_was_checked(power: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync pages count as clean: dropped behind the check, they come back as what the disk has."""
    files = MemFiles()
    log = opened(files).log
    for _ in range(5):
        append(log, a_batch())
    files.fail_next("sync", "*.log")
    with pytest.raises(DiskFailedError):
        log.sync_job().run()
    log.sync_failed()
    log.close()
    honest = Scan._scan_segment

    def scanned(scan: Scan, segment: Segment, position: int, *, rewrite: bool) -> bool:
        whole = honest(scan, segment, position, rewrite=rewrite)
        files.chill()
        return whole

    monkeypatch.setattr(Scan, "_scan_segment", scanned)
    log = opened(files, rewrite_tail=True).log
    if power:
        log = opened(files.crash(random.Random(1))).log
    for header in read_everything(log):
        check_batch(memoryview(read(log, header.base_offset)))
    assert log.end_offset == 5
