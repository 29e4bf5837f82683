"""Copies of a log held against each other: whatever byte differs is found, and the damaged copy is named."""

import pytest
from tests.unit.storage.logs import NOW_MS
from tests.unit.storage.transactions import marker, transactional

from penstock.diagnosis.replica_compare import (
    WRONG_CHECKSUM,
    Compared,
    DamagedError,
    Difference,
    compare,
    contents,
    first_other,
)
from penstock.records.batch import HEADER_BYTES, Buffer, read_header, stamp
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.filtering import emptied, walk
from penstock.records.filtering import without as with_only
from penstock.records.reader import Record, payload_of

OUTSIDE_THE_CHECKSUM = range(16)  # base offset, length and leader epoch


def log_of(*sizes: int) -> bytes:
    """Batches with so many records each."""
    whole, offset = bytearray(), 0
    for size in sizes:
        records = [Record(offset=i, timestamp=7, key=b"k", value=b"%d" % (offset + i)) for i in range(size)]
        batch = build_batch(records, BatchOptions())
        stamp(memoryview(batch), 0, offset, 3)
        whole += batch
        offset += size
    return bytes(whole)


LOG = log_of(2, 1, 3)
END = 6


def flipped(position: int) -> memoryview:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x10
    return memoryview(bytes(damaged))


def compared(**copies: bytes | memoryview) -> Compared:
    return compare({int(name[1:]): memoryview(copy) for name, copy in copies.items()}, 0, END)


def all_differences(copies: dict[int, memoryview]) -> list[Difference]:
    """As far as it takes to find one: what was compared is not looked at again."""
    position, found = 0, Compared(0, 0, [])
    while position < END and not found.differences:
        found = compare(copies, position, END)
        copies = {broker: view[found.size_bytes :] for broker, view in copies.items()}
        position = found.next_offset
    return found.differences


def test_copies_that_are_the_same() -> None:
    assert compared(b1=LOG, b2=LOG, b3=LOG) == Compared(len(LOG), END, [])


def test_only_what_all_have_is_compared() -> None:
    first = len(log_of(2))
    assert compared(b1=LOG, b2=LOG[: first + 5]) == Compared(first, 2, [])
    assert compared(b1=LOG[: first + 5], b2=LOG) == Compared(first, 2, [])


def test_what_lies_behind_the_end_is_not_compared() -> None:
    ahead = LOG + log_of(9)[:HEADER_BYTES]
    found = compare({1: memoryview(ahead), 2: memoryview(LOG)}, 0, 3)
    assert found == Compared(len(log_of(2, 1)), 3, [])


def test_one_that_has_nothing_differs() -> None:
    assert [difference.broker for difference in compared(b1=LOG, b2=b"").differences] == [2]
    assert [difference.broker for difference in compared(b1=b"", b2=LOG).differences] == [1]


@pytest.mark.parametrize("position", range(len(LOG)))
def test_any_flipped_byte_is_found(position: int) -> None:
    starts = [0, len(log_of(2)), len(log_of(2, 1))]
    number = max(n for n, start in enumerate(starts) if start <= position)
    for copies, damaged in (
        ({1: memoryview(LOG), 2: flipped(position)}, 2),
        ({1: flipped(position), 2: memoryview(LOG)}, 1),
        ({1: memoryview(LOG), 2: memoryview(LOG), 3: flipped(position)}, 3),
    ):
        found = all_differences(copies)
        assert found, copies
        if position - starts[number] not in OUTSIDE_THE_CHECKSUM:
            # Offsets are not what tells who is right; the checksum is.
            assert [difference.broker for difference in found] == [damaged]
            assert found[0].offset == [0, 2, 3][number]


def test_damage_that_all_copies_share_is_found() -> None:
    damaged = flipped(HEADER_BYTES + 3)
    found = compared(b1=damaged, b2=damaged)
    # Of all of them: whoever is not named is taken for whole.
    assert found.differences == [Difference(broker, 0, WRONG_CHECKSUM, is_damaged=True) for broker in (1, 2)]
    assert compared(b1=damaged).differences == found.differences[:1]


def without(first: int, last: int) -> bytes:
    """LOG without some of its batches."""
    starts = [0, len(log_of(2)), len(log_of(2, 1)), len(LOG)]
    return LOG[: starts[first]] + LOG[starts[last] :]


def test_whoever_lacks_a_batch_is_named_also_where_it_leads() -> None:
    for lacking, offset, there in ((without(1, 2), 2, 3), (without(0, 1), 0, 2), (without(0, 2), 0, 3)):
        why = f"it has the batch of offset {there} there"
        assert compared(b1=lacking, b2=LOG).differences == [Difference(1, offset, why)]
        assert compared(b1=LOG, b2=lacking).differences == [Difference(2, offset, why)]
        assert compared(b1=lacking, b2=lacking, b3=LOG).differences == [
            Difference(1, offset, why),
            Difference(2, offset, why),
        ]


def test_nobody_is_called_damaged_whose_batch_is_sound() -> None:
    other = bytearray(LOG)
    stamp(memoryview(other), len(log_of(2)), 2, 4)  # of another leader
    for found in (compared(b1=LOG, b2=bytes(other)), compared(b1=without(1, 2), b2=LOG)):
        assert [difference.is_damaged for difference in found.differences] == [False]
    for bad in (flipped(HEADER_BYTES + 3), memoryview(b"")):
        assert [difference.is_damaged for difference in compared(b1=LOG, b2=bad).differences] == [True]
        assert [difference.is_damaged for difference in compared(b1=bad, b2=LOG).differences] == [True]


def test_what_all_copies_lack_is_told_as_a_gap() -> None:
    lacking = without(1, 2)
    assert compared(b1=lacking, b2=lacking) == Compared(len(lacking), END, [], has_gap=True)
    assert not compared(b1=LOG, b2=LOG).has_gap
    # At the border of an answer, too: of none of them it is damage.
    behind = LOG[len(log_of(2, 1)) :]
    found = compare({1: memoryview(behind), 2: memoryview(behind)}, 2, END)
    assert found == Compared(len(behind), END, [], has_gap=True)
    assert compare({1: memoryview(behind), 2: memoryview(behind)}, 2, 3) == Compared(0, 3, [], has_gap=True)
    # One that has something there is the one to go by.
    rest = LOG[len(log_of(2)) :]
    found = compare({1: memoryview(behind), 2: memoryview(rest)}, 2, END)
    assert [(difference.broker, difference.offset) for difference in found.differences] == [(1, 2)]


def test_records_of_compacted_copies() -> None:
    reference, other = contents(memoryview(LOG), 0, END), contents(memoryview(LOG), 0, END)
    assert reference == other
    assert reference.next_offset == END
    assert sorted(reference.records) == [0, 1, 2, 3, 4, 5]
    kept = {offset: record for offset, record in other.records.items() if offset != 3}
    assert first_other(reference.records, kept, END) is None
    changed = kept | {4: kept[4]._replace(value=b"other")}
    assert first_other(reference.records, changed, END) == 4
    assert first_other(reference.records, changed, 4) is None
    assert contents(memoryview(b""), 4, END) == ({}, END)
    with pytest.raises(DamagedError) as damaged:
        contents(flipped(len(log_of(2)) + HEADER_BYTES + 3), 0, END)
    assert damaged.value.offset == 2
    for torn in (LOG[:40], flipped(8), flipped(16)):
        with pytest.raises(DamagedError):
            contents(memoryview(torn), 0, END)


def with_transactions(*, committed: bool = False, cleaned: bool = False) -> memoryview:
    """Two batches of a producer and the marker that ends them; `cleaned` as compaction leaves them."""
    end = marker(7, 0, committed=committed)
    batches: list[Buffer] = [transactional((7, 0, 0), 2), transactional((7, 0, 2)), end]
    whole, offset = bytearray(), 0
    for number, batch in enumerate(batches):
        header = read_header(batch)
        if cleaned and number == 1:
            batch = emptied(header)
        elif cleaned and number == 2:
            payload = payload_of(batch, 0, header)
            batch = with_only(header, payload, list(walk(payload, 1)), NOW_MS + 1000)
        stamp(memoryview(batch), 0, offset, 3)
        if not (cleaned and number == 0):
            whole += batch
        offset += header.last_offset_delta + 1
    return memoryview(bytes(whole))


def test_markers_and_what_was_aborted_are_records_as_others_are() -> None:
    same = compare({1: with_transactions(), 2: with_transactions()}, 0, 4)
    assert (same.differences, same.next_offset) == ([], 4)
    other = compare({1: with_transactions(), 2: with_transactions(committed=True)}, 0, 4)
    assert [(difference.broker, difference.offset) for difference in other.differences] == [(2, 3)]


def test_of_compacted_copies_one_may_have_dropped_what_was_aborted() -> None:
    """And given the marker the time at which it goes itself."""
    whole, cleaned = contents(with_transactions(), 0, 4), contents(with_transactions(cleaned=True), 0, 4)
    assert (sorted(whole.records), sorted(cleaned.records)) == ([0, 1, 2, 3], [3])
    assert first_other(whole.records, cleaned.records, 4) is None
    opposite = contents(with_transactions(committed=True), 0, 4)
    assert first_other(opposite.records, cleaned.records, 4) == 3
