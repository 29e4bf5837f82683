"""Rows of an archive in order, for one partition at a time: from a folder directly, from elsewhere through Spark."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.reader import locate, rows_that_count
from penstock.spark.pipelines.replaying.waves import next_wave, pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# What one job brings to this process at a time.
_WAVE_ROWS = 100_000
_WAVE_BYTES = 32_000_000


class Rows(Protocol):
    def batches(
        self, files: Collection[ArchivedFile], partition: int, start: int, end: int
    ) -> "Iterator[pa.RecordBatch]":
        """Rows with `start <= offset < end` by offset; FileNotFoundError or CorruptFileError for a file."""


class LocalRows:
    """Files of a folder, with Arrow alone: no Spark, no Java, no waiting."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def batches(
        self, files: Collection[ArchivedFile], partition: int, start: int, end: int
    ) -> "Iterator[pa.RecordBatch]":
        from penstock.spark.pipelines.from_archive.merge import LocalFile, merged  # noqa: PLC0415 - needs pyarrow

        wanted = [piece for piece in pieces(files, partition, start) if piece.first < end]
        located = locate(self._lake, [piece.file for piece in wanted])
        local = [
            LocalFile(
                Path(self._lake.url(located[piece.file.path]).removeprefix("file://")),
                piece.first,
                piece.last,
                piece.size_bytes / max(1.0, piece.rows),
            )
            for piece in wanted
        ]
        yield from merged(local, partition, start, end)


class SparkRows:
    """Files anywhere that Spark reaches, one bounded step after another."""

    def __init__(self, lake: Lake, session: "SparkSession") -> None:
        self._lake = lake
        self._session = session

    def batches(
        self, files: Collection[ArchivedFile], partition: int, start: int, end: int
    ) -> "Iterator[pa.RecordBatch]":
        from penstock.spark.pipelines.archive.failures import spark_errors  # noqa: PLC0415 - with PySpark only
        from penstock.spark.pipelines.replaying.job import rows_of  # noqa: PLC0415

        starts = {partition: start}
        while starts[partition] < end:
            wave = next_wave(files, starts, rows_max=_WAVE_ROWS, bytes_max=_WAVE_BYTES)
            if wave is None:
                return
            located = locate(self._lake, wave.files)
            part = wave.slices[partition]
            slices = {partition: part._replace(end=min(part.end, end))}
            with spark_errors(self._lake.uri):
                rows = rows_that_count(self._session, self._lake, wave.files, located)
                table = rows_of(rows, slices).sort("offset").toArrow()
            yield from table.to_batches()
            starts[partition] = part.end
