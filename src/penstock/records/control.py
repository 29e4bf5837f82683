"""Control records that end a transaction: its markers.

Key:   version int16 | type int16 (0 abort, 1 commit; others mean other things)
Value: version int16 | epoch of the coordinator that decided it, int32
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.records.batch import BatchHeader, Buffer, InvalidBatch
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import read_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def transaction_end(key: bytes | None) -> bool | None:
    """True: committed, False: aborted, None: of another kind."""
    if key is None or len(key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(key)
    return {_ABORT: False, _COMMIT: True}.get(kind)


def transaction_end_key(*, committed: bool) -> bytes:
    return _KEY.pack(0, _COMMIT if committed else _ABORT)


def read_marker(batch: Buffer) -> Marker | None:
    """Of a control batch; None: it ends no transaction. Compaction may have emptied it."""
    try:
        record = next(iter(read_records(batch)), None)
    except InvalidBatch:
        return None
    if record is None or (committed := transaction_end(record.key)) is None:
        return None
    value = record.value or b""
    epoch = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else -1
    return Marker(committed, epoch)


def marker_batch(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytearray:
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    builder = BatchBuilder(options)
    key = transaction_end_key(committed=marker.committed)
    builder.append(_VALUE.pack(0, marker.coordinator_epoch), key=key, timestamp=now_ms)
    return builder.build()


class AbortedReader:
    """Goes through batches in their order, as a consumer does, and says which of them were aborted."""

    __slots__ = ("_aborted", "_producers")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """(Producer, first offset) of each transaction, by first offset."""
        self._aborted = deque(aborted)
        self._producers: set[int] = set()  # whose records are left out, up to their marker

    def leaves_out(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        while self._aborted and self._aborted[0][1] <= header.last_offset:
            self._producers.add(self._aborted.popleft()[0])
        if header.is_control:
            self._producers.discard(header.producer_id)
            return False
        return header.producer_id in self._producers
