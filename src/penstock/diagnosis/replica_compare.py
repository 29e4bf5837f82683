"""Copies of one partition, held against each other: where they part, and whose copy is damaged. No I/O here.

A plain log is byte for byte the same on every broker: base offsets, leader epochs, everything. Compaction works on each
broker for itself, so of a compacted log only what two copies both have can be compared, record by record.

Who leads need not be right: a leader may have lost files behind its back, while a follower has all of them. A copy is
damaged where its checksum is wrong, or where it has no batch at all; one that is sound and not the same may be the only
one that has something.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.client.raw.batches import NotABatchError, whole_batches
from penstock.records.batch import HEADER_BYTES, MAGIC, InvalidBatch, check_batch, read_header
from penstock.records.reader import iter_batches, payload_of, records_in

WRONG_CHECKSUM = "the checksum of its batch is wrong"
NO_BATCH = "it has no whole batch there"


class Difference(NamedTuple):
    broker: int
    offset: int  # of the first record of the batch, or of the record
    why: str
    is_damaged: bool = False  # nothing there can be read; else it is sound, and not the same


class Compared(NamedTuple):
    size_bytes: int  # how much of every copy that is still trusted was compared
    next_offset: int
    differences: list[Difference]  # a broker that is named here is not to be compared any further
    has_gap: bool = False  # offsets that none of these copies has, between others


def compare(copies: Mapping[int, memoryview], position: int, end: int) -> Compared:
    """What each broker sent from `position` on, up to the batch that holds `end`; the first one is the reference."""
    left = dict(copies)
    differences: list[Difference] = []
    # What no copy has is no difference: as between batches, so at the border of an answer.
    first = min((_first_offset(view, position) for view in left.values()), default=position)
    shared_gap, position = first > position, first
    if position >= end:
        return Compared(0, end, [], shared_gap)
    while left:
        reference = next(iter(left))
        sound, why = _sound(left[reference], position, end)
        if why:
            differences.append(Difference(reference, position, why, why == NO_BATCH))
            del left[reference]
            continue
        found = _against(reference, left, sound, position)
        differences += found
        for difference in found:
            del left[difference.broker]
        if reference in left:
            size = _boundary(sound, min(len(view) for view in left.values()))
            differences += _damaged(left, sound[:size])
            following, has_gap = _walked(sound[:size], position)
            return Compared(size, following, differences, has_gap or shared_gap)
    return Compared(0, end, differences)


def _first_offset(view: memoryview, position: int) -> int:
    """Of a copy that was read from `position` on; that where it cannot be told, or where nothing is missing."""
    if _fault(view, 0):
        return position
    return max(position, read_header(view, 0).base_offset)


def _sound(view: memoryview, position: int, end: int) -> tuple[memoryview, str]:
    """As many batches of a copy as look like some, or why not even the first does."""
    size = 0
    while len(view) - size >= HEADER_BYTES:
        header = read_header(view, size)
        following = size + header.size_bytes
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= len(view) - size:
            break
        if size == 0 and not header.base_offset <= position < header.next_offset:
            return view[:0], _later(header.base_offset)
        if header.base_offset >= end:
            break
        size = following
    return view[:size], "" if size else NO_BATCH


def _later(offset: int) -> str:
    return f"it has the batch of offset {offset} there"


def _against(
    reference: int, copies: Mapping[int, memoryview], sound: memoryview, start: int
) -> list[Difference]:
    """What is wrong with the others; or with the reference itself, then alone."""
    found = []
    for broker, view in copies.items():
        position = -1 if broker == reference else _parting(sound, view)
        if position < 0:
            continue
        offset = read_header(sound, position).base_offset
        own, other = _fault(sound, position), _fault(view, position)
        if own and not other:
            return [Difference(reference, offset, own, is_damaged=True)]
        if other:
            found.append(Difference(broker, offset, other, is_damaged=True))
            continue
        # Both are sound: whoever goes on where the batch before ends lacks nothing.
        expected, _ = _walked(sound[:position], start)
        mine, theirs = (_covers(copy, position, expected) for copy in (sound, view))
        if theirs and not mine:
            return [Difference(reference, expected, _later(offset))]
        why = f"it is not what broker {reference} has"
        if mine and not theirs:
            why = _later(read_header(view, position).base_offset)
        found.append(Difference(broker, expected if mine else offset, why))
    return found


def _covers(copy: memoryview, position: int, offset: int) -> bool:
    header = read_header(copy, position)
    return header.base_offset <= offset < header.next_offset


def _parting(reference: memoryview, other: memoryview) -> int:
    """Where the first batch of `reference` begins that is not the same in `other`, as far as that goes; -1: nowhere."""
    size = min(len(reference), len(other))
    # A comparison of views looks at one byte after the other; one of bytes does not.
    if bytes(reference[:size]) == bytes(other[:size]):
        return -1 if _boundary(reference, size) else 0
    position = 0
    while True:
        end = position + read_header(reference, position).size_bytes
        if bytes(reference[position:end]) != bytes(other[position:end]):
            return position
        position = end


def _fault(copy: memoryview, position: int) -> str:
    if len(copy) - position < HEADER_BYTES:
        return NO_BATCH
    try:
        check_batch(copy, position)
    except InvalidBatch:
        return WRONG_CHECKSUM
    return ""


def _damaged(brokers: Iterable[int], batches: memoryview) -> list[Difference]:
    """The first batch whose checksum is wrong, in the copies of all of them: they are the same so far."""
    for position, header in iter_batches(batches):
        if _fault(batches, position):
            return [
                Difference(broker, header.base_offset, WRONG_CHECKSUM, is_damaged=True) for broker in brokers
            ]
    return []


def _boundary(batches: memoryview, limit: int) -> int:
    """The end of the last batch that lies within the limit."""
    end = 0
    for position, header in iter_batches(batches):
        if position + header.size_bytes > limit:
            break
        end = position + header.size_bytes
    return end


def _walked(batches: memoryview, start: int) -> tuple[int, bool]:
    """The offset behind batches that begin at `start` or before it; whether there is a gap between them."""
    following, has_gap = start, False
    for _, header in iter_batches(batches):
        has_gap |= header.base_offset > following
        following = header.next_offset
    return following, has_gap


# -- compacted logs ----------------------------------------------------------------------------------------------


class Content(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Contents(NamedTuple):
    records: dict[int, Content]
    next_offset: int  # behind what was read; the end where nothing follows


class DamagedError(Exception):
    """A batch that cannot be opened; `offset` is that of its first record, or where it should have been."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


def contents(view: memoryview, position: int, end: int) -> Contents:
    """The records of whole batches before an end, which were asked for from `position` on. DamagedError."""
    try:
        whole = whole_batches(view, end)
    except NotABatchError as error:
        raise DamagedError(position, f"it has no batch there ({error})") from error
    if not whole.size_bytes and not whole.at_end and len(view):
        raise DamagedError(position, NO_BATCH)
    batches = view[: whole.size_bytes]
    records = {}
    for at, header in iter_batches(batches):
        try:
            check_batch(batches, at)
            for record in records_in(header, payload_of(batches, at, header)):
                records[record.offset] = Content(record.timestamp, record.key, record.value, record.headers)
        except InvalidBatch as error:
            raise DamagedError(header.base_offset, WRONG_CHECKSUM) from error
    return Contents(records, end if whole.at_end or not len(batches) else whole.next_offset)


def first_other(reference: Mapping[int, Content], other: Mapping[int, Content], before: int) -> int | None:
    """The first offset below a limit that both have, with different records."""
    both = (offset for offset in sorted(reference) if offset < before and offset in other)
    return next((offset for offset in both if reference[offset] != other[offset]), None)
