"""The data source `penstock` beside Spark's official Kafka connector: the same Spark, the same broker, the same rows.

Each contender is checked once: its rows, counted and hashed over all columns, must be those of the others.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.load import LoadError
from benchmarks.measurements import Measurement
from benchmarks.rows import Row
from benchmarks.spark_session import (
    CONNECTOR,
    CONNECTOR_TUNED,
    SOURCE,
    checksum,
    cpu_seconds,
    read_all,
    reader,
    session,
    spark_format,
)
from benchmarks.spark_topics import PARTITIONS, Shape, fill, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.contenders import Bench, Contender
    from benchmarks.load import Metrics

SMALL = Shape(4_000_000, (100, 100))
SMALL_BATCHES = Shape(4_000_000, (100, 100), batch_bytes=16_384)
LARGE = Shape(600_000, (1000, 1000))
KEYED_LZ4 = Shape(4_000_000, (50, 150), keyed=True, compression="lz4")
READERS = (SOURCE, CONNECTOR, CONNECTOR_TUNED)
WRITERS = (SOURCE, CONNECTOR)
MB = 1e6


class Checks:
    """What every contender of a measurement must agree on."""

    def __init__(self) -> None:
        self._agreed: dict[str, tuple[object, ...]] = {}
        self._done: set[tuple[str, str]] = set()

    def once(self, topic: str, who: str, find: Callable[[], tuple[object, ...]]) -> None:
        if (topic, who) in self._done:
            return
        found = find()
        agreed = self._agreed.setdefault(topic, found)
        if found != agreed:
            raise LoadError(f"{who} has rows of its own: {found}, where others have {agreed}")
        self._done.add((topic, who))


def spark_of(bench: Bench) -> SparkSession:
    return bench.shared("spark", lambda: session(bench.base_dir))


def filled_topic(bench: Bench, filled: dict[str, str], shape: Shape) -> tuple[str, int]:
    """The topic of a measurement, one for all its contenders, and its rows; written when first asked for."""
    rows = int(shape.rows * bench.scale)
    if SOURCE.key not in filled:
        machine.settle(1.5 * rows * shape.row_bytes)
        topic = bench.new_topic(SOURCE, partitions=PARTITIONS)
        filled[SOURCE.key] = topic
        before = rows_in(bench.broker(SOURCE).bootstrap, topic)
        fill(bench.broker(SOURCE).bootstrap, topic, shape, rows)
        rows_there = rows_in(bench.broker(SOURCE).bootstrap, topic)
        if rows_there != before + rows:
            raise LoadError(f"{rows_there - before} rows in {topic}, {rows} were written")
    return filled[SOURCE.key], rows


def timed(bench: Bench, rows: int, row_bytes: float, job: Callable[[], object]) -> Metrics:
    """Run the job; processor time is that of Spark, its JVM and its Python workers together, without the broker."""
    broker_pid = bench.broker(SOURCE).pid
    cpu, broker_cpu = cpu_seconds(), machine.cpu_seconds(broker_pid)
    began = time.monotonic()
    job()
    seconds = time.monotonic() - began
    broker_cpu = machine.cpu_seconds(broker_pid) - broker_cpu
    cpu = cpu_seconds() - cpu - broker_cpu
    return {
        "rows": rows,
        "seconds": seconds,
        "rows_per_s": rows / seconds,
        "mb_per_s": rows * row_bytes / MB / seconds,
        "spark_cpu_us_per_row": cpu / rows * 1e6,
        "broker_cpu_us_per_row": broker_cpu / rows * 1e6,
    }


def read(bench: Bench, contender: Contender, filled: dict[str, str], checks: Checks, shape: Shape) -> Metrics:
    topic, rows = filled_topic(bench, filled, shape)
    frame = reader(spark_of(bench), contender, bench.broker(contender).bootstrap, topic).load()
    checks.once(topic, contender.key, lambda: checksum(frame))
    machine.settle()
    return timed(bench, rows, shape.row_bytes, lambda: read_all(frame))


def to_parquet(
    bench: Bench, contender: Contender, filled: dict[str, str], checks: Checks, shape: Shape
) -> Metrics:
    topic, rows = filled_topic(bench, filled, shape)
    frame = reader(spark_of(bench), contender, bench.broker(contender).bootstrap, topic).load()
    with folder(bench, "parquet") as target:
        machine.settle(rows * shape.row_bytes)
        metrics = timed(bench, rows, shape.row_bytes, lambda: frame.write.parquet(str(target)))
        checks.once(topic, contender.key, lambda: checksum(spark_of(bench).read.parquet(str(target))))
    return metrics


def sink(bench: Bench, contender: Contender, checks: Checks, shape: Shape) -> Metrics:
    """Rows that Spark makes as it goes, to a new topic, until the last is acknowledged."""
    rows = int(shape.rows * bench.scale)
    spark, bootstrap = spark_of(bench), bench.broker(contender).bootstrap
    topic = bench.new_topic(contender, partitions=PARTITIONS)
    try:
        before = rows_in(bootstrap, topic)
        machine.settle(1.5 * rows * shape.row_bytes)
        writer = made_rows(spark, rows, shape).write.format(spark_format(contender)).mode("append")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        metrics = timed(bench, rows, shape.row_bytes, writer.save)
        written = rows_in(bootstrap, topic) - before
        if written != rows:
            raise LoadError(f"{contender.key} wrote {written} rows instead of {rows}")
        # With another reader than the writer's own for ours, and the other way round.
        back = reader(spark, CONNECTOR if contender == SOURCE else SOURCE, bootstrap, topic).load()
        checks.once("sink", contender.key, lambda: checksum(back.where("length(value) > 3"), "key", "value"))
    finally:
        bench.delete_topic(contender, topic)
    return metrics


def made_rows(spark: SparkSession, rows: int, shape: Shape) -> DataFrame:
    """Rows of fixed size with a number in each; the cheapest that Spark can make, as they are not what is measured."""
    from pyspark.sql import functions as fn

    number = fn.lpad(fn.col("id").cast("string"), 12, "0").cast("binary")
    rest = fn.lit(bytes(i % 251 for i in range(shape.value_bytes[0] - 12)))
    columns = [fn.concat(number, rest).alias("value")]
    if shape.keyed:
        columns.append(fn.substring(number, 5, 8).alias("key"))
    return spark.range(0, rows, numPartitions=PARTITIONS).select(*columns)


def archive(bench: Bench, contender: Contender, filled: dict[str, str], shape: Shape) -> Metrics:
    """`penstock pipeline archive --once`: the whole of it, manifest and moves included."""
    from penstock.spark import pipelines

    topic, rows = filled_topic(bench, filled, shape)
    spark, bootstrap = spark_of(bench), bench.broker(contender).bootstrap
    rows_there = rows_in(bootstrap, topic)
    with folder(bench, "lake") as target:
        machine.settle(rows * shape.row_bytes)
        archived: list[int] = []
        metrics = timed(
            bench,
            rows,
            shape.row_bytes,
            lambda: archived.append(
                pipelines.archive(topic, to=str(target), bootstrap=bootstrap, spark=spark).rows
            ),
        )
    if archived != [rows_there]:
        raise LoadError(f"{archived} rows archived, the topic has {rows_there}")
    return metrics


@contextmanager
def folder(bench: Bench, name: str) -> Iterator[Path]:
    """A path that does not exist yet; what is written there goes afterwards."""
    target = bench.base_dir / name
    try:
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _reading(
    key: str, run: Callable[..., Metrics], shape: Shape, contenders: tuple[Contender, ...] = READERS
) -> Measurement:
    filled: dict[str, str] = {}
    checks = Checks()
    return Measurement(
        key, "spark", partial(run, filled=filled, checks=checks, shape=shape), contenders, topics=filled
    )


def _sink(key: str, shape: Shape) -> Measurement:
    return Measurement(key, "spark", partial(sink, checks=Checks(), shape=shape), WRITERS)


def _archive(key: str, shape: Shape) -> Measurement:
    filled: dict[str, str] = {}
    return Measurement(key, "spark", partial(archive, filled=filled, shape=shape), (SOURCE,), topics=filled)


SPARK = (
    _reading("spark-read-100b", read, SMALL),
    _reading("spark-read-100b-16k", read, SMALL_BATCHES),
    _reading("spark-read-1k", read, LARGE),
    _reading("spark-read-keyed-lz4", read, KEYED_LZ4),
    _reading("spark-parquet-1k", to_parquet, LARGE),
    _sink("spark-sink-100b", SMALL),
    _sink("spark-sink-1k", LARGE),
    _sink("spark-sink-keyed-100b", Shape(4_000_000, (100, 100), keyed=True)),
    _archive("spark-archive-1k", LARGE),
)


def _beside(
    title: str, key: str, as_it_comes: float | None = None, tuned: float | None = None
) -> tuple[Row, ...]:
    ours, plain, other = SOURCE.key, CONNECTOR.key, CONNECTOR_TUNED.key
    rows = Row(title, key, "rows_per_s", "rows/s", ours, plain, as_it_comes)
    return rows, Row(f"{title}, beside the tuned one", key, "rows_per_s", "rows/s", ours, other, tuned)


SPARK_ROWS = (
    *_beside("read 100 B", "spark-read-100b", 2.0, 1.3),
    *_beside("read 100 B in batches of 16 kB", "spark-read-100b-16k"),
    *_beside("read 1 kB", "spark-read-1k", 1.2, 0.9),
    *_beside("read 50 to 150 B with keys, lz4", "spark-read-keyed-lz4", 2.0, 1.5),
    *_beside("topic to Parquet, 1 kB", "spark-parquet-1k", 1.1, 0.9),
    _beside("write 100 B", "spark-sink-100b", 1.3)[0],
    _beside("write 1 kB", "spark-sink-1k", 1.1)[0],
    _beside("write 100 B with keys", "spark-sink-keyed-100b")[0],
    Row("archive 1 kB", "spark-archive-1k", "mb_per_s", "MB/s", SOURCE.key, None),
)
