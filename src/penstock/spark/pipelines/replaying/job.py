"""The Spark job of one wave: read its files, bring each partition to one task in order, write."""

from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.spark.errors import reason
from penstock.spark.pipelines.archive.errors import ArchiveError, LakeFullError
from penstock.spark.pipelines.archive.failures import explained
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.reader import rows_that_count
from penstock.spark.pipelines.archive.tables import own_session
from penstock.spark.pipelines.replaying.errors import ReplayError
from penstock.spark.pipelines.replaying.selection import Selection
from penstock.spark.pipelines.replaying.waves import Slice, Wave, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.pipelines.archive.entries import ArchivedFile
    from penstock.spark.pipelines.replaying.writing import Done, Writer

# More tasks than cores even out what the estimate of their sizes got wrong.
_TASKS_PER_CORE = 4
_SETTINGS = {
    # Bounds what a task holds of large records; the default counts rows alone.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
}


def job_session(spark: "SparkSession") -> "SparkSession":
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise ReplayError(
            "spark.speculation=true runs tasks twice at the same time, and both would write: turn it off for a replay"
        )
    session = own_session(spark)
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def run_wave(
    session: "SparkSession",
    lake: Lake,
    wave: Wave,
    files: "Iterable[ArchivedFile]",
    located: "Mapping[str, str]",
    selection: Selection,
    writer: "Writer",
) -> "list[Done]":
    """Nothing is written before every file has been read: the shuffle stands between the two."""
    from penstock.spark.pipelines.replaying import sink  # noqa: PLC0415 - needs PySpark

    if not located:
        return []
    tasks = min(len(wave.slices), _TASKS_PER_CORE * session.sparkContext.defaultParallelism)
    task_of = spread({partition: part.weight for partition, part in wave.slices.items()}, tasks)
    frame = rows_of(rows_that_count(session, lake, files, located), wave.slices)
    condition = selection.condition()
    if condition is not None:
        frame = frame.where(condition)
    ordered = (
        frame.repartitionById(tasks, _by_partition({at: (task,) for at, task in task_of.items()}, 0))
        .sortWithinPartitions("partition", "offset")
        .select("partition", "offset", "timestamp", "key", "value", "headers")
    )
    try:
        return sink.write(ordered, writer)
    except Exception as error:
        raise _said(error, lake.uri) from error


def _said(error: Exception, lake_uri: str) -> PenstockError:
    said = explained(error, lake_uri)
    if isinstance(said, LakeFullError):
        # Nothing is written to the lake here: it is the disk that the rows are sorted on.
        return ReplayError(
            "no space is left where Spark sorts the rows: name another folder with --conf spark.local.dir=FOLDER, and "
            "run again"
        )
    # What is no trouble of the lake is one of the target: its own words are the better ones.
    return ReplayError(reason(error)) if type(said) is ArchiveError else said


def rows_of(frame: "DataFrame", slices: "Mapping[int, Slice]") -> "DataFrame":
    """Those in these ranges of offsets."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    partition, offset = fn.col("partition"), fn.col("offset")
    bounds = {at: (part.start, part.end) for at, part in slices.items()}
    # The first three are for Parquet, which can skip row groups and pages by them; the last two are exact.
    return (
        frame.where(partition.isin(list(bounds)))
        .where(offset >= min(start for start, _ in bounds.values()))
        .where(offset < max(end for _, end in bounds.values()))
        .where(offset >= _by_partition(bounds, 0))
        .where(offset < _by_partition(bounds, 1))
    )


def _by_partition(values: "Mapping[int, tuple[int, ...]]", index: int) -> "Column":
    """A number for each partition, looked up by its own."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    found = [values[at][index] if at in values else 0 for at in range(max(values) + 1)]
    return fn.element_at(fn.array(*map(fn.lit, found)), fn.col("partition") + 1)
