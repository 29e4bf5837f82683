"""The archive read back: the rows of a topic as the data source gives them, from the files the manifest names."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import ArchiveError, CorruptFileError
from penstock.spark.pipelines.archive.failures import spark_errors
from penstock.spark.pipelines.archive.lake import Lake, open_lake
from penstock.spark.pipelines.archive.manifest import STAGING, Manifest
from penstock.spark.pipelines.archive.tables import SCHEMA, fingerprint, own_session, read_files
from penstock.spark.pipelines.archive.topics import TopicArchive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The order of the data source's columns.
SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_LOCATE_TRIES = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted of a topic; files that cannot hold any of it are not opened."""

    partitions: frozenset[int] | None = None
    # Per partition the first offset, and the one behind the last.
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)

    def holds(self, file: ArchivedFile) -> bool:
        return any(
            (self.partitions is None or partition in self.partitions)
            and last >= self.start.get(partition, 0)
            and first < self.end.get(partition, last + 1)
            for partition, (first, last) in file.offsets.items()
        )


def archived(
    spark: "SparkSession",
    uri: str,
    topic: str,
    *,
    topic_id: str | None = None,
    selection: Selection | None = None,
    skip_corrupt: bool = False,
    report: Callable[[str], None] = _log.warning,
) -> "DataFrame":
    """Every archived row of a topic, each once, in no particular order, with the columns of the data source.

    A topic that was deleted and made anew has several incarnations; the newest one is read unless `topic_id` says
    otherwise. A damaged file is an error that names it, when the frame is computed; with `skip_corrupt` all files are
    checked beforehand, and `report` is told about each that is left out.
    """
    lake = open_lake(uri, spark)
    for _ in range(_LOCATE_TRIES):
        found: list[str] = []
        files = topic_files(Manifest.load(lake), topic, topic_id, selection)
        located = locate(lake, files, report=found.append if skip_corrupt else None)
        if skip_corrupt:
            urls = intact(own_session(spark), [lake.url(path) for path in located.values()], found.append)
            located = {path: where for path, where in located.items() if lake.url(where) in urls}
        if not any(file.staged and file.path not in located for file in files):
            break  # what an archiver has just moved away under our eyes is in its place now
    for line in found:
        report(line)
    return _frame(spark, lake, files, located, topic)


def topic_files(
    manifest: Manifest, topic: str, topic_id: str | None = None, selection: Selection | None = None
) -> list[ArchivedFile]:
    archive = find_topic(manifest, topic, topic_id)
    files = sorted(archive.files.values(), key=lambda file: file.path)
    return [file for file in files if (selection or Selection()).holds(file)]


def find_topic(manifest: Manifest, topic: str, topic_id: str | None = None) -> TopicArchive:
    archive = manifest.topic(topic, topic_id)
    if archive is not None:
        return archive
    where, known = manifest.lake.uri, manifest.topics
    if topic in known:
        ids = ", ".join(namesake.topic_id for namesake in known[topic])
        raise ArchiveError(f"{where} holds no topic {topic} with the id {topic_id}, only {ids}")
    if not known:
        raise ArchiveError(f"{where} is no archive: fill it with `penstock pipeline archive --to {where}`")
    raise ArchiveError(f"{where} holds no topic {topic}, only {', '.join(known)}")


def locate(
    lake: Lake, files: Iterable[ArchivedFile], *, report: Callable[[str], None] | None = None
) -> dict[str, str]:
    """Where each file is now: in its place, or (an archiver is at work, or was killed) still in staging.

    Files that are missing or have another length than the manifest says are errors, or left out with `report`.
    """
    files = list(files)
    sizes: dict[str, int] = {}
    # First where files come from, then where they go: one that moves meanwhile is seen once at least.
    folders = [STAGING] if any(file.staged for file in files) else []
    for folder in dict.fromkeys([*folders, *(file.path.partition("/")[0] for file in files)]):
        sizes |= {stored.path: stored.size_bytes for stored in lake.list(folder)}
    located = {}
    for file in files:
        path = file.path if file.path in sizes or file.staged not in sizes else file.staged
        assert path is not None
        error = _judge(lake, file, sizes.get(path), path)
        if error is None:
            located[file.path] = path
        elif report is None:
            raise error
        else:
            report(f"left out {lake.url(path)}, with {file.rows} rows: {error}")
    return located


def _judge(lake: Lake, file: ArchivedFile, size_bytes: int | None, path: str) -> CorruptFileError | None:
    if size_bytes is None:
        return CorruptFileError(lake.url(path), "is missing")
    if size_bytes != file.size_bytes:
        return CorruptFileError(lake.url(path), f"has {size_bytes} bytes, not {file.size_bytes}")
    return None


def intact(session: "SparkSession", urls: list[str], report: Callable[[str], None]) -> list[str]:
    """Those that can be read from end to end, with the checksums of their pages."""
    while urls:
        try:
            check(session, urls)
        except CorruptFileError as error:
            damaged = [url for url in urls if _same(url, error.where)]
            if not damaged:
                raise
            report(f"left out {damaged[0]}: {error}")
            urls = [url for url in urls if url not in damaged]
        else:
            break
    return urls


def check(session: "SparkSession", urls: list[str]) -> None:
    """Reads everything; CorruptFileError names the first file that cannot be."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    with spark_errors(urls[0]):
        read_files(session, urls).agg(fn.bit_xor(fingerprint())).collect()


def _same(url: str, named: str) -> bool:
    """Hadoop writes file:/x where we write file:///x."""
    return url.rpartition("topic=")[2] == named.rpartition("topic=")[2]


def by_limits(
    lake: Lake, files: Iterable[ArchivedFile], located: Mapping[str, str]
) -> dict[tuple[tuple[int, int], ...], list[str]]:
    """Where files are, those together of which the same rows count; most have no limits."""
    found: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for file in files:
        if file.path in located:
            limits = tuple(sorted(file.limits.items()))
            found.setdefault(limits, []).append(lake.url(located[file.path]))
    return found


def rows_that_count(
    session: "SparkSession", lake: Lake, files: Iterable[ArchivedFile], located: Mapping[str, str]
) -> "DataFrame":
    """The rows of files, but for those whose offsets the log has given to other records since they were archived."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    frame: DataFrame | None = None
    for limits, urls in by_limits(lake, files, located).items():
        part = read_files(session, urls)
        for partition, limit in limits:
            part = part.where((fn.col("partition") != partition) | (fn.col("offset") < limit))
        frame = part if frame is None else frame.unionAll(part)
    return session.createDataFrame([], SCHEMA) if frame is None else frame


def _frame(
    spark: "SparkSession", lake: Lake, files: list[ArchivedFile], located: Mapping[str, str], topic: str
) -> "DataFrame":
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    frame = rows_that_count(spark, lake, files, located)
    return frame.withColumn("topic", fn.lit(topic)).select(*SOURCE_COLUMNS)
