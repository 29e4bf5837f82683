"""One Spark for all contenders: the same JVM, the same heap, the connector's jars on its class path."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tools.peers import spark_kafka

from benchmarks import machine
from benchmarks.contenders import Contender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

MASTER = "local[2]"
HEAP = "2g"
TOPIC_CONFIG = {"penstock.ack.after": "written"}
# All of them on the same broker, Penstock.
SOURCE = Contender("penstock", "penstock", TOPIC_CONFIG)
CONNECTOR = Contender("spark-kafka", "penstock", TOPIC_CONFIG)
CONNECTOR_TUNED = Contender("spark-kafka-tuned", "penstock", TOPIC_CONFIG)
TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}


@contextmanager
def session(
    work_dir: Path, *, heap: str = HEAP, connector: bool = True, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    import penstock.spark

    config = {
        "spark.driver.memory": heap,
        "spark.local.dir": str(work_dir / "spark"),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    if connector:
        config["spark.jars"] = ",".join(str(jar) for jar in spark_kafka.jars())
    spark = penstock.spark.session("benchmark", master=MASTER, config=config | dict(more or {}))
    try:
        yield spark
    finally:
        spark.stop()


def spark_format(who: Contender) -> str:
    return "penstock" if who.key == SOURCE.key else "kafka"


def reader(spark: SparkSession, who: Contender, bootstrap: str, topic: str) -> DataFrameReader:
    """A batch read of the whole topic."""
    options = TUNED if who.key == CONNECTOR_TUNED.key else {}
    return (
        spark.read.format(spark_format(who))
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .options(**options)
    )


def read_all(rows: DataFrame) -> None:
    """A job that needs every column of every row, and does nothing with them."""
    rows.write.format("noop").mode("overwrite").save()


def checksum(rows: DataFrame, *columns: str) -> tuple[object, ...]:
    """Of the rows in any order: their number, and a sum of hashes over the columns."""
    from pyspark.sql import functions as fn

    hashes = fn.xxhash64(*(fn.col(name) for name in columns or rows.columns)).cast("decimal(38,0)")
    found = rows.agg(fn.count("*"), fn.sum(hashes)).first()
    return tuple(found or ())


def cpu_seconds() -> float:
    """Of this process (Spark's driver), its JVM and its Python workers; brokers that it started count too."""
    total = 0.0
    for pid in machine.process_tree(os.getpid()):
        # Python workers come and go.
        with suppress(FileNotFoundError, ProcessLookupError):
            total += machine.own_cpu_seconds(pid)
    return total
