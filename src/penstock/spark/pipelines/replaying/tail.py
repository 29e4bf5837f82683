"""The end of a target partition, which says how far a replay has got there."""

from typing import NamedTuple

from penstock.client.raw import EARLIEST, RawClient, TopicPartition
from penstock.records.batch import read_header
from penstock.records.columns.decode import decode_in_parts
from penstock.records.relay import RELAY_IDS
from penstock.spark.pipelines.replaying.errors import DoubledError, OtherRecordsError, RetiredTargetError
from penstock.spark.pipelines.replaying.headers import origin

# How far back the last record is looked for at first: there may be markers of transactions behind it.
LOOK_BACK_OFFSETS = 64
LOOK_BACK_OFFSETS_MAX = 16_384


class Tail(NamedTuple):
    end: int  # where the next record goes
    done: int  # the original offset of the last record that this replay has written here; -1: none yet


def look(client: RawClient, at: TopicPartition, source: str, *, append: bool) -> Tail:
    """OtherRecordsError when the last record is not of this replay, RetiredTargetError when it may be elsewhere.

    DoubledError where what is looked at was written by two runs at once: the last one says nothing then.

    With `append` other records are nothing special: the last one of this replay is looked for among them, however far
    back that is. What an attempt that was killed has sent may not be committed yet, but will be: that is waited for.
    """
    told = client.retirements([at]).get(at)
    if told is not None and told.limit is not None:
        # Readers see no end behind the limit: whatever is there would be written once more at each look.
        raise RetiredTargetError(str(at))
    earliest = client.offsets({at: EARLIEST})[at].offset
    end = client.settled_end(at)
    if end == 0:
        return Tail(0, -1)
    high, step = end, LOOK_BACK_OFFSETS
    while high > earliest:
        low = max(earliest, high - step)
        found = _last_of(client, at, low, high, source, append=append)
        if found is not None:
            if not append and found[0] != source:
                raise OtherRecordsError(str(at), _what(found[0]))
            return Tail(end, found[1])
        high, step = low, min(step * 4, LOOK_BACK_OFFSETS_MAX)
    if not append:
        # Deleted by retention, most likely: nobody can say what was here.
        raise OtherRecordsError(str(at), f"no record below its end at offset {end} that says how far it got")
    return Tail(end, -1)


def _what(source: str | None) -> str:
    if source is None:
        return "other records"
    return f"records of another replay ({source})"


def _last_of(
    client: RawClient, at: TopicPartition, low: int, high: int, source: str, *, append: bool
) -> tuple[str | None, int] | None:
    """Where the last record is from, with `append` the last one of `source`; None when there is none."""
    last: tuple[str | None, int] | None = None
    done = -1
    for fetched in client.fetch(at, low, high):
        moved = _moved(fetched.records)
        for columns in decode_in_parts(fetched.records, first=low, end=high, headers=True):
            headers = columns.headers
            assert headers is not None
            for index, told in enumerate(headers):
                offset = columns.offset[index].as_py()
                is_moved = any(offset in span for span in moved)
                known = None if is_moved else origin(told.as_py())
                if known is not None and known[0] == source:
                    if known[1] <= done:
                        raise DoubledError(str(at), offset)
                    last, done = known, known[1]
                elif not append:
                    last = known or (None, -1)
    return last


def _moved(records: memoryview) -> list[range]:
    """Offsets of what was written to a partition that is being retired: it says how far a replay is there, not here."""
    found = []
    position = 0
    while position < len(records):
        header = read_header(records, position)
        position += header.size_bytes
        if header.producer_id >= RELAY_IDS:
            found.append(range(header.base_offset, header.next_offset))
    return found
