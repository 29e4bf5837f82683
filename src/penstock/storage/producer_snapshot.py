"""Producer snapshots: what a log remembers of its producers, in a file that Kafka's own tools read.

    version 1  checksum  producers | id  epoch  last sequence  last offset  offset delta  timestamp  coordinator  open
    2          4         4         | 8   2      4              8            4             8          4            8

    ours 2 | checksum  producers | id  epoch  timestamp  batches | first, last sequence  first, last offset  timestamp
    2      | 4         4         | 8   2      8          1       | 4      4              8      8            8

The first part is Kafka's layout: `kafka-dump-log` shows it, and a snapshot that Kafka wrote is read by it. It has one
batch of each producer and no relays. `coordinator` is the epoch of who last ended a transaction of it, and `open` where
the one that is open began; -1 where there is none.

The second part is what this broker goes by: up to five batches each, and relays. Kafka's reader stops before it. Its
list is also what brokers tell each other (FetchSnapshot), and what releases before this layout wrote as the whole file.
Where no relay goes by a name (`storage.relay_positions`) its version is 1, which releases before names read. Where
there are transactions it is 3, and these come between version and list: those that are open, and those whose end was
not known to be committed.

    ours 3 | checksum  rows | id  coordinator  first offset  marker | list as above
    2      | 4         4    | 8   4            8             8      |

Checksums are CRC32C, each of everything behind it.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class under a module's naming

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.core.formats import check_version
from penstock.records.relay import RELAY_IDS
from penstock.storage.open_transactions import NONE, TransactionRow
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy
from penstock.storage.producers import ProducerState
from penstock.storage.relay_positions import names_in_snapshot

_VERSION = 1
_OURS_VERSION = 3
_WITHOUT_TRANSACTIONS = 2
_WITHOUT_NAMES = 1

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_OURS = Struct(">h")
_LIST = Struct(">II")
_PRODUCER = Struct(">qhqB")
_BATCH = Struct(">iiqqq")
_TRANSACTION = Struct(">qiqq")
_CHECKSUM = Struct(">I")
_CHECKSUM_BYTES = _CHECKSUM.size

_NO_BATCH = AppendedBatch(-1, -1, -1, -1, -1)
_NO_TRANSACTION = (NONE, NONE)
_SEQUENCES = 1 << 31


def dump_state(state: ProducerState) -> bytes:
    return dump_producers(state.copy(), state.transactions.rows())


def dump_producers(producers: Sequence[ProducerCopy], transactions: Sequence[TransactionRow] = ()) -> bytes:
    """A snapshot, as `load_producers` takes it."""
    # An open one comes behind one of the same producer that has just ended.
    told = {row[0]: (row[1], row[2] if row[3] == NONE else NONE) for row in transactions}
    entries = [
        _entry(producer, told.get(producer.producer_id, _NO_TRANSACTION))
        for producer in producers
        if producer.producer_id < RELAY_IDS
    ]
    version = _WITHOUT_TRANSACTIONS if any(map(names_in_snapshot, producers)) else _WITHOUT_NAMES
    ours = (
        _OURS.pack(_OURS_VERSION) + _encode_transactions(transactions)
        if transactions
        else _OURS.pack(version)
    )
    ours += encode_producers(producers)
    body = b"".join((_COUNT.pack(len(entries)), *entries, ours))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def _entry(producer: ProducerCopy, transaction: tuple[int, int]) -> bytes:
    last = producer.batches[-1] if producer.batches else _NO_BATCH
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        producer.last_timestamp,
        *transaction,
    )


def load_producers(data: bytes) -> ProducerState:
    """From a snapshot; StorageError when it is damaged, NewerFormatError when a newer release wrote it."""
    try:
        version, checksum = _HEAD.unpack_from(data)
        if version < 1 or checksum != crc32c(memoryview(data)[_HEAD.size :]):
            return ProducerState.of(decode_producers(data))  # of a release that named no version, or damaged
        check_version("the producer snapshot", version, _VERSION)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        ours = _HEAD.size + _COUNT.size + count * _ENTRY.size
        if ours == len(data):
            return _told_by_kafka(data)
        (version,) = _OURS.unpack_from(data, ours)
        check_version("what the producer snapshot has beside Kafka's part", version, _OURS_VERSION)
        at = ours + _OURS.size
        transactions: list[TransactionRow] = []
        if version == _OURS_VERSION:
            at, transactions = _decode_transactions(data, at)
        state = ProducerState.of(decode_producers(data[at:]))
        state.transactions.add(transactions)
        return state  # noqa: TRY300 - all of it may be damaged
    except StructError as error:
        raise StorageError(f"unreadable producer snapshot: {error}") from error


def _told_by_kafka(data: bytes) -> ProducerState:
    state = ProducerState()
    for producer_id, epoch, last, offset, delta, timestamp, coordinator, first in _ENTRY.iter_unpack(
        data[_HEAD.size + _COUNT.size :]
    ):
        batch = AppendedBatch((last - delta) % _SEQUENCES, last, offset - delta, offset, timestamp)
        state.add([ProducerCopy(producer_id, epoch, timestamp, (batch,) if offset >= 0 else ())])
        if (coordinator, first) != _NO_TRANSACTION:
            state.transactions.add([(producer_id, coordinator, first, NONE)])
    return state


def _encode_transactions(rows: Sequence[TransactionRow]) -> bytes:
    body = _COUNT.pack(len(rows)) + b"".join(_TRANSACTION.pack(*row) for row in rows)
    return _CHECKSUM.pack(crc32c(body)) + body


def _decode_transactions(data: bytes, at: int) -> tuple[int, list[TransactionRow]]:
    """With where they end."""
    (checksum,), (count,) = _CHECKSUM.unpack_from(data, at), _COUNT.unpack_from(data, at + _CHECKSUM.size)
    first = at + _CHECKSUM.size + _COUNT.size
    end = first + count * _TRANSACTION.size
    if count < 0 or end > len(data) or checksum != crc32c(memoryview(data)[at + _CHECKSUM.size : end]):
        raise StorageError("unreadable producer snapshot: wrong checksum of its transactions")
    return end, list(_TRANSACTION.iter_unpack(data[first:end]))


def encode_producers(producers: Sequence[ProducerCopy]) -> bytes:
    parts = [b"", _LIST.pack(0, len(producers))[_CHECKSUM_BYTES:]]
    for producer_id, epoch, last_timestamp, batches in producers:
        parts.append(_PRODUCER.pack(producer_id, epoch, last_timestamp, len(batches)))
        parts.extend(_BATCH.pack(*batch) for batch in batches)
    body = b"".join(parts)
    return _LIST.pack(crc32c(body), 0)[:_CHECKSUM_BYTES] + body


def decode_producers(data: bytes) -> list[ProducerCopy]:
    """From `encode_producers`; StorageError when it is damaged."""
    try:
        checksum, count = _LIST.unpack_from(data)
        if checksum != crc32c(memoryview(data)[_CHECKSUM_BYTES:]):
            raise StorageError("unreadable producer snapshot: wrong checksum")
        at, producers = _LIST.size, []
        for _ in range(count):
            producer_id, epoch, last_timestamp, batches = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            end = at + batches * _BATCH.size
            found = tuple(map(AppendedBatch._make, _BATCH.iter_unpack(data[at:end])))
            producers.append(ProducerCopy(producer_id, epoch, last_timestamp, found))
            at = end
    except StructError as error:
        raise StorageError(f"unreadable producer snapshot: {error}") from error
    return producers
