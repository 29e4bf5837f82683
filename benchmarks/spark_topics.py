"""Topics for the Spark part: rows that differ, in the batches that a busy producer makes.

Values are half noise, half repetition, so that lz4 and Parquet find as much to save as in logs and JSON: a topic of one
message repeated would turn into a Parquet file of nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.client.raw import LATEST, RawClient, TopicPartition
from penstock.records.columns.encode import encode

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTITIONS = 4
NOW_MS = 1_700_000_000_000
ROWS_PER_MS = 20
# What librdkafka makes under load; the Java producer sends 16 kB unless told otherwise.
BATCH_BYTES = 1_000_000
CHUNK_BYTES = 16_000_000
NOISE_BYTES = 1 << 24
KEY_DIGITS = 8


class Shape(NamedTuple):
    """What the rows of a topic look like. `rows` is for a full-size run."""

    rows: int
    value_bytes: tuple[int, int]
    keyed: bool = False
    compression: str = "none"
    batch_bytes: int = BATCH_BYTES

    @property
    def row_bytes(self) -> float:
        """Of payload, on average."""
        return sum(self.value_bytes) / 2 + (KEY_DIGITS if self.keyed else 0)


def fill(bootstrap: str, topic: str, shape: Shape, rows: int, *, seed: int = 0) -> None:
    """Append so many rows to the topic, spread evenly over its partitions."""
    rng = np.random.default_rng(seed)
    noise = np.frombuffer(rng.bytes(NOISE_BYTES), np.uint8)
    chunk_rows = max(1, int(CHUNK_BYTES / shape.row_bytes / PARTITIONS))
    with RawClient(bootstrap) as client, client.producer() as producer:
        for number, start in enumerate(range(0, rows, chunk_rows)):
            count = min(chunk_rows, rows - start)
            times = NOW_MS + np.arange(start, start + count) // ROWS_PER_MS
            for batch in encode(
                _keys(rng, count) if shape.keyed else None,
                _values(rng, noise, count, shape.value_bytes),
                timestamp=pa.array(times),
                compression=shape.compression,
                batch_bytes_max=shape.batch_bytes,
            ):
                producer.send(TopicPartition(topic, number % PARTITIONS), batch)
        producer.flush()


def rows_in(bootstrap: str, topic: str) -> int:
    with RawClient(bootstrap) as client:
        partitions = client.describe([topic])[topic].partitions
        ends = client.offsets({TopicPartition(topic, number): LATEST for number in partitions})
    return sum(end.offset for end in ends.values())


def _values(
    rng: np.random.Generator, noise: NDArray[np.uint8], count: int, sizes: tuple[int, int]
) -> pa.BinaryArray:
    lengths = rng.integers(sizes[0], sizes[1], count, endpoint=True)
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    start = int(rng.integers(0, NOISE_BYTES))
    data = noise.take(np.arange(start, start + int(ends[-1])), mode="wrap")
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    data[within >= np.repeat(lengths // 2, lengths)] = ord(".")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)


def _keys(rng: np.random.Generator, count: int) -> pa.BinaryArray:
    numbers = rng.integers(0, 10**KEY_DIGITS, count)
    digits = numbers[:, None] // 10 ** np.arange(KEY_DIGITS - 1, -1, -1) % 10
    data = (digits + ord("0")).astype(np.uint8)
    ends = np.arange(0, (count + 1) * KEY_DIGITS, KEY_DIGITS, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
