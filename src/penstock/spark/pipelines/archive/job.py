"""The Spark jobs of a round: read ranges of topics and write them to staging, then look at what was written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.client.raw import TopicPartition
from penstock.spark.option_names import EPOCHS, HOLES
from penstock.spark.pipelines.archive.entries import Mark, Span
from penstock.spark.pipelines.archive.errors import ArchiveError, LakeError
from penstock.spark.pipelines.archive.failures import spark_errors
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.planning import Plan, rows_per_task, tasks_wanted
from penstock.spark.pipelines.archive.tables import ORDER, WRITE_OPTIONS, read_files, with_folders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The leader epochs of each range.
Epochs = Mapping[TopicPartition, Sequence[Mark]]
# topic=…/date=…/hour=…/file
_PATH_PARTS = 4


@dataclass(frozen=True, slots=True)
class Written:
    """What a job says that it wrote."""

    rows: int
    payload_bytes: int  # keys and values, as they are: what users call megabytes


@dataclass(frozen=True, slots=True)
class FoundFile:
    """What is in a file that was written, read back from it."""

    path: str  # below the staging folder
    rows: int
    offsets: dict[int, tuple[int, int]]


def source_frame(
    session: "SparkSession",
    plan: Plan,
    epochs: Epochs,
    bootstrap: str,
    kafka: Mapping[str, str],
    records_max: int,
) -> "DataFrame":
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for at, start, end in plan.ranges:
        starts.setdefault(at.topic, {})[str(at.partition)] = start
        ends.setdefault(at.topic, {})[str(at.partition)] = end
    marks: dict[str, dict[str, Sequence[Mark]]] = {}
    for at, found in epochs.items():
        marks.setdefault(at.topic, {})[str(at.partition)] = found
    holes: dict[str, dict[str, list[Span]]] = {}
    for gap in plan.gaps:
        holes.setdefault(gap.at.topic, {}).setdefault(str(gap.at.partition), []).append((gap.start, gap.end))
    assigned = {topic: [int(partition) for partition in offsets] for topic, offsets in starts.items()}
    options = {f"kafka.{name}": value for name, value in kafka.items()} | {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        # A gap that opens while we read ends the job: the next plan sees it, and has it noted in the manifest.
        "failOnDataLoss": "true",
        "isolation.level": "read_committed",
        "maxRecordsPerPartition": str(records_max),
        EPOCHS: json.dumps(marks),
        HOLES: json.dumps(holes),
    }
    return session.read.format("penstock").options(**options).load()


def write_round(
    session: "SparkSession",
    lake: Lake,
    staging: str,
    plan: Plan,
    *,
    epochs: Epochs,
    bootstrap: str,
    kafka: Mapping[str, str],
    compression: str,
) -> Written:
    from pyspark.sql import Observation  # noqa: PLC0415 - with PySpark only
    from pyspark.sql import functions as fn  # noqa: PLC0415

    cores = session.sparkContext.defaultParallelism
    frame = source_frame(session, plan, epochs, bootstrap, kafka, rows_per_task(plan, cores))
    observed = Observation()
    with spark_errors(lake.uri):
        counted = with_folders(frame.coalesce(tasks_wanted(plan, cores))).observe(
            observed,
            fn.count(fn.lit(1)).alias("rows"),
            fn.sum(fn.octet_length("key")).alias("keys"),
            fn.sum(fn.octet_length("value")).alias("values"),
        )
        write(counted, lake.url(staging), compression)
    found = observed.get
    return Written(int(found["rows"]), int(found["keys"] or 0) + int(found["values"] or 0))


def write(frame: "DataFrame", url: str, compression: str) -> None:
    """In order: by folder, so that a task has one file open at a time, then by partition and offset."""
    ordered = frame.sortWithinPartitions(*ORDER)
    ordered.write.partitionBy("topic", "date", "hour").options(
        compression=compression, **WRITE_OPTIONS
    ).parquet(url)


def read_back(session: "SparkSession", lake: Lake, staging: str, written: Written) -> list[FoundFile]:
    """What staging holds, file by file, from the files themselves; it must be what the job says that it wrote."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    stored = [entry.path for entry in lake.list(staging) if entry.path.endswith(".parquet")]
    rows = []
    if stored:
        with spark_errors(lake.uri):
            frame = read_files(session, [lake.url(path) for path in stored], "partition int, offset bigint")
            rows = (
                frame.groupBy(fn.col("_metadata.file_path").alias("path"), "partition")
                .agg(
                    fn.count("*").alias("rows"), fn.min("offset").alias("low"), fn.max("offset").alias("high")
                )
                .collect()
            )
    files: dict[str, FoundFile] = {}
    for row in rows:
        path = "/".join(unquote(row["path"]).split("/")[-_PATH_PARTS:])
        file = files.get(path, FoundFile(path, 0, {}))
        offsets = file.offsets | {row["partition"]: (row["low"], row["high"])}
        files[path] = FoundFile(path, file.rows + row["rows"], dict(sorted(offsets.items())))
    there = sum(file.rows for file in files.values())
    if there != written.rows:
        raise LakeError(
            f"{written.rows} rows were written to {lake.uri}, but {there} are there: "
            "is it the same place for the driver and every worker?"
        )
    return sorted(files.values(), key=lambda file: file.path)


def check_ranges(plan: Plan, files: list[FoundFile]) -> None:
    """Every offset inside what was planned; a mistake here must not reach the manifest."""
    planned = {(at.topic, at.partition): (start, end) for at, start, end in plan.ranges}
    for file in files:
        topic = file.path.partition("/")[0].removeprefix("topic=")
        for partition, (low, high) in file.offsets.items():
            start, end = planned.get((topic, partition), (0, 0))
            if not start <= low <= high < end:
                raise ArchiveError(
                    f"{topic}-{partition} gave offsets {low} to {high} for {start} to {end}: nothing was committed; "
                    "this is a bug in penstock"
                )
