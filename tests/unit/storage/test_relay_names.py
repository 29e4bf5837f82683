"""Sources that do not fit into a producer id go by names, which are part of the log as their positions are."""

import pytest
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync

from penstock.core.crc32c import crc32c
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.formats import NewerFormatError
from penstock.records.batch import BatchHeader, InvalidBatch, check_batch, read_header
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import iter_batches, read_all
from penstock.records.relay import (
    NOTHING_MOVED,
    Relayed,
    RelayPlace,
    RelaySource,
    names_source,
    position_batch,
    producer_fields,
    read_position,
    retired_source,
    stamp_name,
    stamp_relayed,
)
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import (
    decode_producers,
    dump_producers,
    encode_producers,
    load_producers,
)
from penstock.storage.producers import ProducerState
from penstock.storage.replicated import append_replicated
from penstock.testing.mem_files import MemFiles

KIND = 1
ONE = RelaySource(KIND, bytes(range(16)), 3)
OTHER = RelaySource(KIND, bytes([255]) * 16, 3)


def moved(name: int, number: int, count: int = 1, epoch: int = 3) -> bytearray:
    batch = a_batch([NOW_MS] * count)
    stamp_relayed(memoryview(batch), name, epoch, number, named=True)
    return batch


def named(source: RelaySource, name: int, place: RelayPlace = NOTHING_MOVED) -> bytearray:
    return position_batch(source, place, NOW_MS, name=name)


def put(log: Log, *batches: bytearray) -> None:
    for batch in batches:
        assert log.producers.check_relayed(read_header(batch), batch) is None
        append(log, batch)


def a_story(log: Log) -> None:
    """0: a name; 1 to 3: records; 4: another name; 5, 6: records; 7: of a retired partition; 8: of the first again."""
    put(log, named(ONE, 0), moved(0, 0, 3), named(OTHER, 1), moved(1, 0, 2))
    put(log, a_batch(producer=producer_fields(7, 3, 0)), moved(0, 3, epoch=4))


def known(state: ProducerState) -> dict[RelaySource, tuple[tuple[RelayPlace, ...], int, int]]:
    return {
        source: (position.places(), position.name, position.said_at)
        for source, position in state.relays.by_source.items()
    }


EXPECTED = {
    ONE: ((RelayPlace(4, 3), RelayPlace(3, 2)), 0, 0),
    OTHER: ((RelayPlace(3, 1),), 1, 4),
    retired_source(7): ((RelayPlace(3, 0),), -1, 7),
}


def test_a_position_says_whose_it_is_and_readers_skip_it() -> None:
    batch = position_batch(ONE, RelayPlace(7, 1 << 45), NOW_MS, name=5, skips=True)
    header = check_batch(memoryview(batch))
    assert names_source(header)
    expected = Relayed(5, 7, 1 << 45, 1 << 45, skips=True, named=True)
    assert read_position(header, batch) == (ONE, expected)
    header = stamp_name(memoryview(batch), 2**24 - 1)
    assert check_batch(memoryview(batch)) == header
    assert read_position(header, batch) == (ONE, expected._replace(source=2**24 - 1))
    assert list(read_all(batch)) == []


def test_a_position_of_a_newer_release_is_refused_and_one_that_is_none_too() -> None:
    for value, error in (
        (b"\0\2" + bytes(50), NewerFormatError),
        (b"\0\1", InvalidBatch),
        (b"", InvalidBatch),
    ):
        producer_id, epoch, sequence = producer_fields(0, 0, 0, named=True)
        builder = BatchBuilder(
            BatchOptions(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, control=True)
        )
        builder.append(value, key=b"\0\0RP", timestamp=NOW_MS)
        batch = builder.build()
        with pytest.raises(error):
            read_position(read_header(batch), batch)
        builder.append(value, key=b"\0\0RP", timestamp=NOW_MS)
        batch = builder.build()
        with pytest.raises(error):
            read_position(read_header(batch), batch)


def test_two_sources_of_one_number_in_two_topics_are_two() -> None:
    log = opened(MemFiles()).log
    a_story(log)
    assert known(log.producers) == EXPECTED


def test_they_are_in_snapshots_whose_version_says_so() -> None:
    log = opened(MemFiles()).log
    a_story(log)
    data = dump_producers(log.producers.copy())
    ours = 2 + 4 + 4
    assert data[ours : ours + 2] == b"\0\2"
    assert data[2:6] == crc32c(data[6:]).to_bytes(4)
    again = load_producers(data)
    assert known(again) == EXPECTED
    assert again.copy() == log.producers.copy()


@pytest.mark.parametrize("checkpointed", [0, 1, 3, 6, 9])
def test_a_restart_finds_them_whatever_the_snapshot_has(checkpointed: int) -> None:
    files = MemFiles()
    story = opened(MemFiles()).log
    a_story(story)
    data = story.active.file.pread(story.active.size, 0)
    log = opened(files).log
    for position, header in iter_batches(data):
        append_replicated(log, memoryview(bytearray(data[position : position + header.size_bytes])), NOW_MS)
        if log.end_offset == checkpointed or (header.base_offset < checkpointed <= header.last_offset):
            sync(log, checkpoint=True)
    log.write_out()
    log.close()
    assert known(opened(files).log.producers) == EXPECTED


@pytest.mark.parametrize("end", range(9))
def test_after_a_cut_they_are_as_if_no_more_had_been_written(end: int) -> None:
    log, short = opened(MemFiles()).log, opened(MemFiles()).log
    a_story(log)
    data = log.active.file.pread(log.active.size, 0)
    for position, header in iter_batches(data):
        if header.last_offset < end:
            append(short, bytearray(data[position : position + header.size_bytes]))
    cut = log.truncation(end)
    assert cut is not None
    cut.run()
    log.truncated(cut)
    assert known(log.producers) == known(short.producers)


def test_who_reads_on_from_an_offset_is_told_what_lies_before_it() -> None:
    log = opened(MemFiles()).log
    a_story(log)
    data = log.active.file.pread(log.active.size, 0)
    for offset in (0, 1, 4, 5, 7, 8, 9):
        told, next_id = log.producers.copy_below(offset, 0, 100)
        assert next_id < 0
        again = ProducerState.of(decode_producers(encode_producers(told)))
        for position, header in iter_batches(data):
            if header.base_offset >= offset:
                again.record(header, header.base_offset, data[position : position + header.size_bytes])
        latest = {source: (places[0], name) for source, (places, name, _) in known(again).items()}
        assert latest == {source: (places[0], name) for source, (places, name, _) in EXPECTED.items()}


def test_what_goes_by_an_unknown_name_is_refused_and_read_over() -> None:
    """Retention took its position; who still moves has one that was said again, behind it."""
    state = ProducerState()
    header = read_header(moved(0, 5))
    with pytest.raises(ApiError) as refused:
        state.check_relayed(header, b"")
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    state.record(header, 10)
    assert not state.relays.by_source
    batch = named(ONE, 0, RelayPlace(3, 5))
    state.record(read_header(batch), 11, batch)
    assert known(state) == {ONE: ((RelayPlace(3, 5),), 0, 11)}


def test_gaps_repeats_and_skips_are_as_they_are_for_retired_partitions() -> None:
    log = opened(MemFiles()).log
    put(log, named(ONE, 0))
    state = log.producers

    def check(batch: bytearray) -> object:
        return state.check_relayed(read_header(batch), batch)

    with pytest.raises(ApiError):
        check(moved(0, 1))
    put(log, moved(0, 0, 2))
    assert check(moved(0, 0, 2)) is not None
    assert check(named(ONE, 0)) is not None, "named already"
    with pytest.raises(ApiError):
        check(moved(0, 3))
    put(log, position_batch(ONE, RelayPlace(3, 7), NOW_MS, name=0, skips=True))
    assert check(moved(0, 8)) is None


def test_a_name_is_given_anew_once_its_source_is_over() -> None:
    state = ProducerState()

    def say(batch: bytearray, offset: int) -> None:
        header: BatchHeader = read_header(batch)
        state.record(header, offset, batch)

    say(named(ONE, 0), 0)
    assert state.relays.free_name() == 1
    behind = ProducerState.of(state.copy())  # a replica that has not noticed yet
    for now_ms in (0, 1000):
        state.expire(now_ms, 100, relays=[])
    assert state.relays.free_name() == 0
    for replica in (state, behind):
        batch = named(OTHER, 0)
        replica.record(read_header(batch), 5, batch)
        replica.record(read_header(moved(0, 0)), 6)
        assert known(replica) == {OTHER: ((RelayPlace(3, 0),), 0, 5)}


def test_the_log_tells_a_position_from_its_name_on() -> None:
    """What retention must keep: where the name was given, and no later than that is committed."""
    log = opened(MemFiles(), Settings()).log
    put(log, named(ONE, 0), moved(0, 0))
    position = log.producers.relays.by_source[ONE]
    assert position.is_committed(2)
    assert position.committed_at == 0
    append(log, named(ONE, 0, RelayPlace(3, 0)))
    position = log.producers.relays.by_source[ONE]
    assert not position.is_committed(2)
    assert (position.said_at, position.committed_at) == (2, 0)
    assert position.is_committed(3)
    assert position.committed_at == 2
