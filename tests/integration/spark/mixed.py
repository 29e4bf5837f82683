"""Messages of every sort by the million, made and summed up by the column."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.raw import EARLIEST, LATEST, RawClient, TopicPartition
from penstock.records.columns.decode import Columns, decode_in_parts
from penstock.records.columns.encode import encode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK_ROWS = 20_000
NOON_MS = 1_700_000_000_000
# Clocks run from noon on, and are wrong by up to this much either way: some rows lie in the hour before or after.
SPREAD_MS = 4 * 3_600_000
JITTER_MS = 600_000
REPLAY = "penstock.replay."


def produce(bootstrap: str, topic: str, records: int, partitions: tuple[int, ...]) -> None:
    """`records` over these partitions, in turn with every compression."""
    dice = np.random.default_rng(records)
    with RawClient(bootstrap) as client, client.producer() as producer:
        made = turn = 0
        while made < records:
            rows = min(CHUNK_ROWS, records - made)
            at = TopicPartition(topic, partitions[turn % len(partitions)])
            key, value, timestamp, headers = _rows(dice, made, rows, records)
            codec = CODECS[turn // len(partitions) % len(CODECS)]
            for batch in encode(
                key, value, timestamp=timestamp, headers=headers, compression=codec, batch_bytes_max=200_000
            ):
                producer.send(at, batch)
            made += rows
            turn += 1


def _rows(
    dice: np.random.Generator, first: int, rows: int, records: int
) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    number = np.arange(first, first + rows)
    key = pc.binary_join_element_wise("key-", pa.array(number % 1000).cast(pa.string()), "").cast(pa.binary())
    key = pc.if_else(pa.array(number % 4 == 0), pa.scalar(None, pa.binary()), key)
    key = pc.if_else(pa.array(number % 19 == 0), pa.scalar(b""), key)
    value = _bytes(dice, np.where(number % 31 == 0, 0, dice.integers(0, 160, rows)))
    value = pc.if_else(pa.array(number % 17 == 0), pa.scalar(None, pa.binary()), value)
    jitter = dice.integers(-JITTER_MS, JITTER_MS, rows)
    timestamp = pa.array(NOON_MS + number * SPREAD_MS // records + jitter)
    return key, value, timestamp, _headers(dice, number)


def _bytes(dice: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    # A few hundred different bytes would not compress, one would do nothing but: something between.
    data = dice.integers(120, 136, int(bounds[-1]), np.uint8)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(bounds), pa.py_buffer(data.tobytes())]
    )


def _headers(dice: np.random.Generator, number: np.ndarray) -> pa.ListArray:
    counts = number % 4
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    total = int(bounds[-1])
    names = pa.array(["a", "tags", "späť", ""]).take(pa.array(dice.integers(0, 4, total)))
    values = _bytes(dice, dice.integers(0, 12, total))
    values = pc.if_else(pa.array(np.arange(total) % 7 == 0), pa.scalar(None, pa.binary()), values)
    entries = pa.StructArray.from_arrays([names, values], names=["key", "value"])
    return pa.ListArray.from_arrays(pa.array(bounds), entries)


class Sum(NamedTuple):
    """What a partition holds, in order: how many records, and a checksum over every byte of them."""

    records: int
    checksum: str


class Sums:
    """Fed in parts of any size: where they are cut makes no difference, since every field is a stream of its own."""

    def __init__(self) -> None:
        self._records = 0
        self._streams: dict[str, hashlib.blake2b] = {}

    def add(self, columns: Columns, *, replayed: bool) -> None:
        self._records += len(columns.offset)
        headers = columns.headers
        assert headers is not None
        counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
        entries = headers.flatten()
        names, values = entries.field(0), entries.field(1)
        own = np.ones(len(names), bool)
        if replayed:
            _check_origin(columns, names, values)
            own = ~pc.starts_with(names, REPLAY).to_numpy(zero_copy_only=False)
            rows = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(rows[own], minlength=len(counts))
        self._feed("timestamp", columns.timestamp.to_numpy().tobytes())
        self._feed("timestamp type", columns.timestamp_type.to_numpy().tobytes())
        self._feed("headers", counts.astype(np.int64).tobytes())
        self._binary("key", columns.key)
        self._binary("value", columns.value)
        self._binary("name", names.filter(pa.array(own)).cast(pa.binary()))
        self._binary("header", values.filter(pa.array(own)))

    def _binary(self, name: str, column: pa.BinaryArray) -> None:
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype(np.int64)
        self._feed(f"{name} length", lengths.tobytes())
        whole = column.drop_null()
        if len(whole):
            # Arrow's offsets say where the bytes of a slice begin and end; nulls are out, so they have no holes.
            packed = pa.concat_arrays([whole])
            _, bounds, data = packed.buffers()
            ends = np.frombuffer(bounds, np.int32)
            low, high = ends[packed.offset], ends[packed.offset + len(packed)]
            self._feed(name, bytes(memoryview(data)[low:high]) if data is not None else b"")

    def _feed(self, name: str, data: bytes) -> None:
        self._streams.setdefault(name, hashlib.blake2b(digest_size=16)).update(data)

    @property
    def sum(self) -> Sum:
        every = "".join(stream.hexdigest() for _, stream in sorted(self._streams.items()))
        return Sum(self._records, hashlib.blake2b(every.encode(), digest_size=16).hexdigest())


def _check_origin(columns: Columns, names: pa.Array, values: pa.Array) -> None:
    """What a replayed record says of its origin: here it is where it was, so the two must agree."""
    said = {
        field: values.filter(pc.equal(names, f"{REPLAY}{field}")).cast(pa.string()).cast(pa.int64())
        for field in ("offset", "timestamp")
    }
    assert said["offset"].equals(columns.offset)
    assert said["timestamp"].equals(columns.timestamp)


def sums(bootstrap: str, topic: str, *, replayed: bool = False) -> dict[int, Sum]:
    with RawClient(bootstrap) as client:
        numbers = client.describe([topic])[topic].partitions
        return {number: _sum(client, TopicPartition(topic, number), replayed=replayed) for number in numbers}


def _sum(client: RawClient, at: TopicPartition, *, replayed: bool) -> Sum:
    total = Sums()
    for columns in _columns(client, at):
        total.add(columns, replayed=replayed)
    return total.sum


def _columns(client: RawClient, at: TopicPartition) -> Iterator[Columns]:
    start = client.offsets({at: EARLIEST})[at].offset
    end = client.offsets({at: LATEST})[at].offset
    for fetched in client.fetch(at, start, end):
        yield from decode_in_parts(fetched.records, first=start, end=end, headers=True)
