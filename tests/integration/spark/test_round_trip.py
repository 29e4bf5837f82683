"""Broker → archive → replay → broker: every byte of every record, in its partition and its place.

200,000 records here; `make soak PART=roundtrip` runs the same with ten million, which also shows that the driver's
memory does not grow with them.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from tests.integration.spark.mixed import Sum, produce, sums
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines import archive, replay

RECORDS = int(os.environ.get("PENSTOCK_ROUND_TRIP_RECORDS", "200000"))
PARTITIONS = 6
# The others stay empty.
USED = (0, 1, 3, 5)
# What Arrow, py4j and the manifest may take in the driver, however much passes through the executors.
DRIVER_BYTES_MAX = 200_000_000


@contextmanager
def peak_memory(found: dict[str, int]) -> Iterator[None]:
    """By how much this process grows beyond what it has now, at the most."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    yield
    found["growth"] = _memory("VmHWM") - before


def _memory(name: str) -> int:
    line = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert line is not None
    return int(line[1]) * 1024


def test_round_trip(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create("source", partitions=PARTITIONS), f"{topics.prefix}.target"
    # A few from a client that is not ours, then many from one that is.
    foreign = [Sent(b"%d" % n, b"k", n % 2, 1_700_000_000_000 + n, (("h", None),)) for n in range(200)]
    topics.produce(source, foreign)
    produce(topics.bootstrap, source, RECORDS - len(foreign), USED)
    memory: dict[str, int] = {}
    with peak_memory(memory):
        archived = archive(source, to=str(tmp_path), bootstrap=topics.bootstrap, spark=spark)
        done = replay(str(tmp_path), target, bootstrap=topics.bootstrap, spark=spark)
    assert (archived.rows, done.rows, done.skipped) == (RECORDS, RECORDS, 0)
    original = sums(topics.bootstrap, source)
    assert sums(topics.bootstrap, target, replayed=True) == original
    assert sum(total.records for total in original.values()) == RECORDS
    assert {at for at, total in original.items() if total.records} == set(USED)
    assert topics.consume(target, 1)[0].value is not None
    assert memory["growth"] < DRIVER_BYTES_MAX
    print(_report(original, archived.rows / archived.seconds, done.rows_per_s, memory["growth"]))


def _report(original: dict[int, Sum], archived: float, replayed: float, growth: int) -> str:
    lines = [
        (
            f"{RECORDS:,} records: archived {archived:,.0f} rows/s, replayed {replayed:,.0f} rows/s, "
            f"driver grew by {growth / 1e6:.0f} MB"
        )
    ]
    lines += [
        f"partition {at}: {total.records:,} records, {total.checksum}" for at, total in original.items()
    ]
    return "\n".join(lines)
