"""Compaction of a log: what stays, what goes, and what the files look like afterwards."""

import pytest
from tests.unit.storage.compacting import (
    clean_job,
    compact,
    contents,
    keyed,
    records,
    run_round,
    seal,
    swap_all,
    write,
)
from tests.unit.storage.logs import DIRECTORY, NOW_MS, Settings, append, opened, read_everything, sync

from penstock.records.batch import read_header, stamp_crc
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.compression import Codec
from penstock.storage.aborted_transactions import AbortedTransaction
from penstock.storage.compaction.swap import prepare_swap
from penstock.storage.layout import LOG, segment_name
from penstock.storage.log import Log
from penstock.storage.segment import DamagedSegmentError
from penstock.testing.mem_files import MemFiles


@pytest.fixture
def files() -> MemFiles:
    return MemFiles(1)


@pytest.fixture
def log(files: MemFiles) -> Log:
    return opened(files, Settings(index_interval_bytes=100)).log


def test_the_latest_value_of_each_key_stays_at_its_offset(log: Log) -> None:
    write(log, [[(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")]])
    write(log, [[(b"c", b"1"), (b"a", b"3")]])
    write(log, [[(b"b", b"2")]], roll=False)
    compact(log)
    # The active segment's value of b is neither compacted nor does it replace the older one.
    assert contents(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"b", b"2")]


def test_a_fetch_inside_a_gap_gets_the_next_batch(log: Log) -> None:
    write(log, [[(b"a", b"%d" % number)] for number in range(20)])
    write(log, [[(b"b", b"1")]])
    compact(log)
    for offset in range(20):
        assert [record.offset for record in records(log, offset)] == [19, 20]


def test_a_fetch_gets_over_many_emptied_segments() -> None:
    """Each has an index that may be cold, and only a few are kept."""
    log = opened(MemFiles(1, cold_chance=0.3), Settings(index_interval_bytes=100)).log
    for number in range(20):
        write(log, [[(b"a", b"%d" % number)]])
    compact(log, segment_bytes=0)
    assert [segment.size for segment in log.segments[:19]] == [0] * 19
    assert [record.offset for record in records(log)] == [19]
    for at in range(19):
        assert [record.offset for record in records(log, at)] == [19]


def test_a_batch_keeps_its_offsets_sequences_codec_and_times(log: Log) -> None:
    for codec in Codec:
        append(
            log, keyed([(b"%d" % codec, b"x"), (b"same", b"1"), (b"same", b"2")], codec=codec, producer=None)
        )
    before = read_everything(log)
    seal(log)
    compact(log)
    after = read_everything(log)
    assert [h.base_offset for h in after] == [h.base_offset for h in before]
    assert [h.last_offset_delta for h in after] == [2] * 5
    assert [h.codec for h in after] == list(Codec)
    assert [h.record_count for h in after] == [1, 1, 1, 1, 2]
    assert [h.max_timestamp for h in after] == [NOW_MS] * 4 + [NOW_MS + 2]
    assert [record.timestamp for record in records(log)] == [NOW_MS] * 5 + [NOW_MS + 2]


def test_a_batch_that_loses_nothing_is_the_same_bytes(log: Log) -> None:
    batch = keyed([(b"a", b"1")])
    append(log, batch)
    append(log, keyed([(b"b", b"1"), (b"b", b"2")]))
    seal(log)
    compact(log)
    file = log.segments[0].file
    assert file.pread(len(batch), 0) == batch


def test_an_unchanged_segment_is_left_alone(log: Log) -> None:
    write(log, [[(b"a", b"1"), (b"b", b"1")]])
    segment = log.segments[0]
    result = compact(log)
    assert [cleaned.changed for cleaned in result.segments] == [False]
    assert log.segments[0] is segment
    assert not [name for name in log.files.list_dir(DIRECTORY) if "cleaned" in name]


def test_records_without_a_key_go(log: Log) -> None:
    write(log, [[(None, b"1"), (b"a", b"1"), (None, b"2")]])
    compact(log)
    assert contents(log) == [(1, b"a", b"1")]


def test_a_tombstone_stays_for_delete_retention_and_then_goes(log: Log) -> None:
    write(log, [[(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"c", b"1")]])
    compact(log, now_ms=NOW_MS, delete_retention_ms=500)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    marked = read_everything(log)[-1]
    assert marked.has_delete_horizon
    assert marked.base_timestamp == NOW_MS + 500
    assert [record.timestamp for record in records(log)][1:] == [NOW_MS, NOW_MS + 1]
    # A later horizon does not replace the first, and before it nothing goes.
    compact(log, now_ms=NOW_MS + 499, delete_retention_ms=10_000)
    assert read_everything(log)[-1].base_timestamp == NOW_MS + 500
    assert (2, b"a", None) in contents(log)
    compact(log, now_ms=NOW_MS + 500)
    assert contents(log) == [(1, b"b", b"1"), (3, b"c", b"1")]


def test_the_last_batch_of_a_producer_stays_as_an_empty_one(log: Log, files: MemFiles) -> None:
    append(log, keyed([(b"a", b"1"), (b"b", b"1")], producer=(7, 0, 0)))
    append(log, keyed([(b"a", b"2")], producer=(7, 0, 2)))
    write(log, [[(b"a", b"3"), (b"b", b"2")]])
    compact(log)
    headers = read_everything(log)
    assert [(h.base_offset, h.record_count, h.producer_id) for h in headers] == [(2, 0, 7), (3, 2, -1)]
    assert headers[0].base_sequence == 2
    assert headers[0].codec == 0
    # Also without a snapshot, a start knows what comes next.
    files.unlink(DIRECTORY / "recovery-point")
    log.close()
    again = opened(files).log
    assert again.find_repeat(read_header(keyed([(b"a", b"2")], producer=(7, 0, 2)))) is not None
    assert again.find_repeat(read_header(keyed([(b"a", b"2")], producer=(7, 0, 3)))) is None


def test_the_end_of_the_round_stays_as_an_empty_batch(log: Log) -> None:
    """Else a reader that stopped before it would never learn that there is nothing more."""
    write(log, [[(b"a", b"1")], [(None, b"2")]])
    compact(log)
    assert contents(log) == [(0, b"a", b"1")]
    assert read_everything(log)[-1].next_offset == 2 == log.end_offset


def test_keys_that_do_not_fit_take_several_rounds(log: Log) -> None:
    write(log, [[(b"%d" % number, b"1")] for number in range(10)])
    write(log, [[(b"%d" % number, b"2") for number in range(10)]])
    cleaned_to, rounds, complete = 0, 0, False
    while not complete:
        result = compact(log, keys=4, cleaned_to=cleaned_to)
        assert result.keys <= 4
        assert result.end_offset > cleaned_to
        cleaned_to, complete = result.end_offset, result.complete
        rounds += 1
        assert {key: value for _, key, value in contents(log)} == {b"%d" % n: b"2" for n in range(10)}
    assert rounds == 5
    assert [offset for offset, _, _ in contents(log)] == list(range(10, 20))
    assert cleaned_to == 20


def test_neighbours_are_merged_within_the_segment_size(log: Log) -> None:
    for number in range(6):
        write(log, [[(b"%d" % number, b"x" * 100)]])
    size = log.segments[0].size
    result = compact(log, segment_bytes=size * 4)
    assert [(segment.base_offset, segment.end_offset) for segment in result.segments] == [(0, 4), (4, 6)]
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6]
    assert log.size_bytes == 6 * size
    assert [offset for offset, _, _ in contents(log)] == list(range(6))


def test_merging_stops_at_the_size_of_an_index(log: Log) -> None:
    for number in range(4):
        write(log, [[(b"%d" % number, b"x")]])
    result = compact(log, index_bytes_max=16)
    assert [(segment.base_offset, segment.end_offset) for segment in result.segments] == [(0, 2), (2, 4)]


def test_a_reader_goes_on_in_the_old_file(log: Log) -> None:
    write(log, [[(b"a", b"%d" % number)] for number in range(30)])
    old = log.segments[0]
    before = old.file.pread(old.size, 0)
    found = log.read(5, 10, log.end(), at_least_one=True)
    assert found is not None
    result = run_round(clean_job(log))
    swap = prepare_swap(log, result.segments[0], log.end_offset)
    assert swap is not None
    old.drop_index()
    swap.run()
    # Between the exchange of the files and the loop's learning of it.
    assert old.file.pread(old.size, 0) == before
    assert read_header(found.file.pread(found.size, found.position)).base_offset == 5
    position = old.locate(17, old.size)
    assert position is not None
    assert read_header(old.file.pread(100, position)).base_offset == 17
    swap.finish()
    assert contents(log) == [(29, b"a", b"29")]


def test_an_index_that_is_loaded_late_is_of_the_file_it_is_for(log: Log) -> None:
    """A reader's request to load it may wait in a thread's queue until the files are another segment's."""
    write(log, [[(b"a", b"%d" % number), (b"%d" % number, b"x")] for number in range(30)])
    write(log, [[(b"b", b"1")]])
    old = log.segments[0]
    result = run_round(clean_job(log))
    swap = prepare_swap(log, result.segments[0], log.end_offset)
    assert swap is not None
    swap.run()
    swap.finish()
    old.load_index()
    for offset in range(60):
        position = old.locate(offset, old.size)
        assert position is not None
        assert read_header(old.file.pread(100, position)).base_offset == offset // 2 * 2


def test_retention_keeps_off_segments_that_are_being_exchanged(log: Log) -> None:
    from penstock.storage.retention import RetentionLimits

    write(log, [[(b"a", b"1")], [(b"a", b"2")]])
    write(log, [[(b"b", b"1")]])
    result = run_round(clean_job(log))
    swap = prepare_swap(log, result.segments[0], log.end_offset)
    assert swap is not None
    assert log.expire(RetentionLimits(retention_bytes=0), log.end_offset, NOW_MS) is None
    swap.run()
    swap.finish()
    deletion = log.expire(RetentionLimits(retention_bytes=0), log.end_offset, NOW_MS)
    assert deletion is not None


def test_what_is_gone_or_no_longer_allowed_is_not_exchanged(log: Log) -> None:
    write(log, [[(b"a", b"1")], [(b"a", b"2")]])
    result = run_round(clean_job(log))
    assert prepare_swap(log, result.segments[0], 1) is None
    log.remove_segments(1)
    assert prepare_swap(log, result.segments[0], log.end_offset) is None


def test_a_damaged_segment_is_refused(log: Log, files: MemFiles) -> None:
    write(log, [[(b"a", b"1")], [(b"a", b"2")]])
    file = files.open(DIRECTORY / segment_name(0, LOG))
    file.pwrite(b"!", 65)
    with pytest.raises(DamagedSegmentError, match="CRC"):
        compact(log)


def test_records_that_are_none_behind_the_right_crc_are_refused(log: Log) -> None:
    batch = keyed([(b"a", b"1"), (b"b", b"1")])
    batch[61] = 2  # a record of one byte
    stamp_crc(memoryview(batch), 0, len(batch))
    append(log, batch)
    seal(log)
    with pytest.raises(DamagedSegmentError, match="do not fill their batch"):
        compact(log)


def test_offsets_that_cannot_be_are_refused(log: Log, files: MemFiles) -> None:
    write(log, [[(b"a", b"1")], [(b"a", b"2")]])
    file = files.open(DIRECTORY / segment_name(0, LOG))
    file.pwrite(b"!", log.segments[0].size // 2)  # the first byte of the second batch
    with pytest.raises(DamagedSegmentError, match="out of order"):
        compact(log)


def test_a_segment_that_ends_inside_a_batch_is_refused(log: Log, files: MemFiles) -> None:
    write(log, [[(b"a", b"1")], [(b"a", b"2")]])
    file = files.open(DIRECTORY / segment_name(0, LOG))
    file.truncate(100)
    with pytest.raises(DamagedSegmentError):
        compact(log)


def test_a_restart_reads_what_was_compacted(log: Log, files: MemFiles) -> None:
    for number in range(5):
        write(log, [[(b"a", b"%d" % number), (b"%d" % number, b"x")]])
    compact(log, segment_bytes=400)
    sync(log, checkpoint=True)
    before = contents(log)
    log.close()
    for lost in ((), ("*.index",), ("recovery-point",)):
        for name in files.list_dir(DIRECTORY):
            if any(name.endswith(pattern.lstrip("*")) for pattern in lost):
                files.unlink(DIRECTORY / name)
        again = opened(files)
        assert not again.set_aside
        assert contents(again.log) == before
        again.log.close()


def test_a_batch_larger_than_the_buffer(log: Log) -> None:
    write(log, [[(b"a", b"x" * 300_000)], [(b"b", b"y" * 200_000), (b"a", b"z")]])
    swap_all(log, run_round(clean_job(log)))
    assert [(offset, key) for offset, key, _ in contents(log)] == [(1, b"b"), (2, b"a")]


def transactional(
    pairs: list[tuple[bytes | None, bytes | None]], *, sequence: int = 0, control: bool = False
) -> bytearray:
    builder = BatchBuilder(
        BatchOptions(
            producer_id=7,
            producer_epoch=0,
            base_sequence=-1 if control else sequence,
            transactional=True,
            control=control,
        )
    )
    for key, value in pairs:
        builder.append(value, key=key, timestamp=NOW_MS)
    return builder.build()


MARKER: list[tuple[bytes | None, bytes | None]] = [(bytes(4), bytes(6))]


def test_records_of_an_aborted_transaction_go_and_replace_nothing(log: Log) -> None:
    write(log, [[(b"a", b"1"), (b"b", b"1")]], roll=False)
    append(log, transactional([(b"a", b"aborted")]))
    append(log, transactional(MARKER, control=True))
    append(log, transactional([(b"b", b"2")], sequence=1))
    append(log, transactional(MARKER, control=True))
    write(log, [[(b"c", b"1")]])
    job = clean_job(log)._replace(aborted=(AbortedTransaction(7, 2, 3),), producers={})
    swap_all(log, run_round(job))
    assert contents(log) == [(0, b"a", b"1"), (4, b"b", b"2"), (6, b"c", b"1")]
    assert [h.base_offset for h in read_everything(log) if h.is_control] == [3, 5]


def test_a_marker_goes_when_its_records_are_gone_and_its_horizon_has_passed(log: Log) -> None:
    append(log, transactional([(b"a", b"1")]))
    append(log, transactional(MARKER, control=True))
    append(log, keyed([(b"a", b"2")]))
    seal(log)

    def markers(now_ms: int) -> list[bool]:
        swap_all(log, run_round(clean_job(log, now_ms=now_ms)._replace(producers={})))
        return [header.has_delete_horizon for header in read_everything(log) if header.is_control]

    assert markers(NOW_MS) == [False]  # the records were there when the round began
    assert markers(NOW_MS) == [True]
    assert markers(NOW_MS + 999) == [True]
    assert markers(NOW_MS + 1000) == []
    assert contents(log) == [(2, b"a", b"2")]
