"""Rows and bytes per second between record batches and Arrow columns, on one core.

    python -m benchmarks.columns [SECONDS]       seconds per figure, 1 by default

A Fetch answer of about 4 MB is decoded over and over, beside aiokafka's codec (Cython) going record by record and
putting what it finds into Arrow columns; then the same rows are encoded. Medians of the repetitions, in CPU time:
all of it runs on one core, and a busy machine then disturbs least.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from penstock.records.columns.decode import decode
from penstock.records.columns.encode import encode, partition_of
from penstock.records.reader import iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable

FETCH_BYTES = 4 * 1024 * 1024
NOW_MS = 1_700_000_000_000
FAR = 2**62


class Load(NamedTuple):
    name: str
    value_bytes: tuple[int, int]
    keyed: bool
    compression: str
    batch_bytes: int


LOADS = (
    Load("100 B", (100, 100), False, "none", 1_000_000),
    Load("100 B, batches of 16 kB", (100, 100), False, "none", 16_384),
    Load("50-150 B", (50, 150), False, "none", 1_000_000),
    Load("1 kB", (1000, 1000), False, "none", 1_000_000),
    Load("0.5-1.5 kB", (500, 1500), False, "none", 1_000_000),
    Load("keyed 100 B", (100, 100), True, "none", 1_000_000),
    Load("keyed 50-150 B lz4", (50, 150), True, "lz4", 1_000_000),
)


class Rows(NamedTuple):
    key: pa.Array | None
    value: pa.Array
    timestamp: pa.Array


def rows_for(load: Load) -> Rows:
    rng = random.Random(7)
    low, high = load.value_bytes
    count = FETCH_BYTES // ((low + high) // 2 + 10)
    # Half random, half repetitive: what lz4 meets in logs and JSON.
    noise = rng.randbytes(1 << 20)
    values = []
    for _ in range(count):
        size = rng.randint(low, high)
        start = rng.randrange(len(noise) - size)
        values.append(noise[start : start + size // 2].ljust(size, b"."))
    keys = pa.array([b"user-%08d" % rng.randrange(10**8) for _ in values]) if load.keyed else None
    return Rows(keys, pa.array(values), pa.array([NOW_MS + i // 20 for i in range(count)], pa.int64()))


def batches_of(rows: Rows, load: Load) -> list[bytearray]:
    return list(
        encode(
            rows.key,
            rows.value,
            timestamp=rows.timestamp,
            compression=load.compression,
            batch_bytes_max=load.batch_bytes,
        )
    )


def decode_by_record(fetch: bytes) -> tuple[pa.Array, ...]:
    columns: tuple[list[object], ...] = ([], [], [], [])
    keys, values, offsets, timestamps = columns
    for position, header in iter_batches(fetch):
        batch = DefaultRecordBatch(fetch[position : position + header.size_bytes])
        if not batch.validate_crc():
            raise ValueError("CRC")
        for record in batch:
            keys.append(record.key)
            values.append(record.value)
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
    kinds = (pa.binary(), pa.binary(), pa.int64(), pa.int64())
    return tuple(pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True))


def median_s(run: Callable[[], object], seconds: float) -> float:
    run()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        started = time.process_time()
        run()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def stamped(batches: list[bytearray]) -> bytes:
    """As the log has them: each batch behind the one before."""
    offset = 0
    for batch in batches:
        batch[:8] = offset.to_bytes(8)
        offset += int.from_bytes(batch[57:61])
    return b"".join(batches)


def measure(load: Load, seconds: float) -> None:
    rows = rows_for(load)
    fetch = stamped(batches_of(rows, load))
    count = len(rows.value)
    record_bytes = rows.value.nbytes + (rows.key.nbytes if rows.key is not None else 0)
    if len(decode(fetch, first=0, end=FAR).value) != count:
        raise AssertionError("rows lost")
    figures: dict[str, float] = {
        "decode": median_s(lambda: decode(fetch, first=0, end=FAR), seconds),
        "by record": median_s(lambda: decode_by_record(fetch), seconds),
        "encode": median_s(lambda: batches_of(rows, load), seconds),
    }
    if rows.key is not None:
        figures["partition"] = median_s(lambda: partition_of(rows.key, 12), seconds)
    for what, taken in figures.items():
        print(
            f"{load.name:26} {what:10} {count / taken / 1e6:7.2f} M rows/s {record_bytes / taken / 1e6:8.0f} MB/s"
            f" {taken / count * 1e9:6.0f} ns/row"
        )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    for load in LOADS:
        measure(load, seconds)


if __name__ == "__main__":
    main()
