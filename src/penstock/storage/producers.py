"""What the log remembers of idempotent producers: enough to drop a repeat and to refuse a gap.

Per producer id: its epoch and the last five batches (sequences and offsets), since a client may have five requests
in flight. A repeat of one of them is answered with the offset it got the first time. The state is a function of the
log, rebuilt from batch headers; a snapshot spares reading the log from its start.
"""

import json
from typing import NamedTuple

from penstock.core.crc32c import crc32c
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import BatchHeader

BATCHES_KEPT = 5  # max.in.flight.requests.per.connection of idempotent clients
_SEQUENCE_MAX = 0x7FFFFFFF


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    __slots__ = ("batches", "epoch", "last_timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[AppendedBatch] = []
        self.last_timestamp = -1


class ProducerState:
    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[tuple[int, ProducerEntry]]:
        return list(self._entries.items())

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """None: append it. A batch: it is here already, under these offsets. Otherwise ApiError."""
        entry = self._entries.get(header.producer_id)
        first, last, epoch = header.base_sequence, header.last_sequence, header.producer_epoch
        if entry is None:
            # A producer we never heard of, or forgot: whatever it says is its beginning, as in Kafka.
            return None
        if epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {header.producer_id} is older than {entry.epoch}",
            )
        if epoch > entry.epoch:
            if first != 0:
                raise _out_of_order(header, "a new epoch starts at sequence 0")
            return None
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        if entry.batches:
            expected = 0 if (previous := entry.batches[-1].last_sequence) == _SEQUENCE_MAX else previous + 1
            if first != expected:
                raise _out_of_order(header, f"expected sequence {expected}")
        return None

    def record(self, header: BatchHeader, first_offset: int) -> None:
        """The batch was written at `first_offset`."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        entry.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                first_offset,
                first_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(entry.batches) > BATCHES_KEPT:
            del entry.batches[0]

    def expire(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since `before_ms`."""
        for producer_id in [p for p, entry in self._entries.items() if entry.last_timestamp < before_ms]:
            del self._entries[producer_id]

    def clear(self) -> None:
        self._entries.clear()

    def dump(self) -> bytes:
        body = json.dumps(
            [[p, e.epoch, e.last_timestamp, e.batches] for p, e in self._entries.items()]
        ).encode()
        return b"%08x\n%s" % (crc32c(body), body)

    @classmethod
    def parse(cls, data: bytes) -> "ProducerState":
        checksum, _, body = data.partition(b"\n")
        state = cls()
        try:
            if int(checksum, 16) != crc32c(body):
                raise ValueError("wrong checksum")
            for producer_id, epoch, last_timestamp, batches in json.loads(body):
                entry = state._entries[producer_id] = ProducerEntry(epoch)
                entry.last_timestamp = last_timestamp
                entry.batches = [AppendedBatch(*batch) for batch in batches]
        except (ValueError, TypeError) as error:
            raise StorageError(f"unreadable producer snapshot: {error}") from error
        return state


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}: {why}",
    )
