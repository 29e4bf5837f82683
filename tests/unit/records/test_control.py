"""Markers as Kafka writes them, and what a reader of batches leaves out by a list of aborted transactions."""

from tests.unit.storage.logs import a_batch
from tests.unit.storage.transactions import transactional

from penstock.records.batch import BatchHeader, read_header
from penstock.records.control import AbortedReader, Marker, marker_batch, read_marker
from penstock.records.reader import read_records


def test_a_marker_is_laid_out_as_in_kafka() -> None:
    batch = marker_batch(7, 3, Marker(committed=True, coordinator_epoch=5), 1000)
    header = read_header(batch)
    assert (header.attributes, header.base_sequence, header.producer_id, header.producer_epoch) == (
        0x30,
        -1,
        7,
        3,
    )
    (record,) = read_records(batch)
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000005")
    assert read_marker(batch) == Marker(committed=True, coordinator_epoch=5)
    assert read_marker(marker_batch(7, 3, Marker(committed=False, coordinator_epoch=0), 1000)) == Marker(
        False, 0
    )


def test_what_ends_no_transaction_is_no_marker() -> None:
    assert read_marker(a_batch()) is None
    assert read_marker(bytes(20)) is None


def at(offset: int, producer_id: int = 7, *, end: bool | None = None) -> BatchHeader:
    """A transactional batch; `end`: the marker that commits, or aborts."""
    ended = marker_batch(producer_id, 0, Marker(bool(end), 0), 0)
    batch = transactional((producer_id, 0, 0)) if end is None else ended
    return read_header(batch)._replace(base_offset=offset)


def test_what_an_aborted_transaction_wrote_is_left_out_up_to_its_marker() -> None:
    reader = AbortedReader([(7, 2), (8, 3)])
    batches = [at(0), at(1, end=True), at(2), at(3, 8), at(4), at(5, end=False), at(6), at(7, 8), at(8, 9)]
    assert [reader.leaves_out(header) for header in batches] == [
        False, False, True, True, True, False, False, True, False,
    ]  # fmt: skip


def test_one_that_began_before_what_is_read_is_left_out_from_the_first_batch_on() -> None:
    reader = AbortedReader([(7, 2)])
    assert reader.leaves_out(at(10))
    assert not reader.leaves_out(read_header(a_batch(producer=(7, 0, 0)))._replace(base_offset=11))
