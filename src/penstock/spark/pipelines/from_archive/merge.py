"""The rows of one partition out of many Parquet files, by offset, without reading them all at once.

Every file is in order by itself, but files overlap: one holds one hour by the records' own clocks, which need not
agree with the order of the log. So as many are open at a time as overlap, each with one batch of rows in hand; rows
up to the smallest last offset of those batches are complete, since nothing that is still to come is below it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.archive.tables import COLUMNS

# One of these per open file is in memory.
BATCH_ROWS = 4_096
BATCH_BYTES = 1_000_000


class LocalFile(NamedTuple):
    path: Path
    first: int  # the first and last offset of the partition in it that count
    last: int
    row_bytes: float


def merged(files: Iterable[LocalFile], partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Rows with `start <= offset < end`; FileNotFoundError when a file is gone, CorruptFileError when it is damaged."""
    waiting = sorted(
        (file for file in files if file.last >= start and file.first < end),
        key=lambda file: (file.first, file.path),
        reverse=True,
    )
    opened: list[_Opened] = []
    try:
        while waiting or opened:
            if not opened:
                _open(waiting.pop(), partition, start, end, opened)
                continue
            frontier = min(reader.last for reader in opened)
            if waiting and waiting[-1].first <= frontier:
                _open(waiting.pop(), partition, start, end, opened)
                continue
            yield _joined([reader.take(frontier) for reader in opened])
            opened = [reader for reader in opened if reader.refill()]
    finally:
        for reader in opened:
            reader.close()


def _open(file: LocalFile, partition: int, start: int, end: int, opened: "list[_Opened]") -> None:
    # Behind its last offset a file may have rows that no longer count.
    reader = _Opened(file, partition, start, min(end, file.last + 1))
    if reader.refill():
        opened.append(reader)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    parts = [part for part in parts if part.num_rows]
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts).combine_chunks()
    order = np.argsort(table.column("offset").to_numpy(), kind="stable")
    return table.take(pa.array(order)).combine_chunks().to_batches()[0]


class _Opened:
    """One file while it is read; `last` is the last offset of the batch in hand."""

    def __init__(self, file: LocalFile, partition: int, start: int, end: int) -> None:
        self._path = file.path
        self._reader: pq.ParquetFile | None = None
        self._batches = self._read(file, partition, start, end)
        self._batch: pa.RecordBatch | None = None
        self.last = -1

    def take(self, frontier: int) -> pa.RecordBatch:
        """The rows up to an offset, out of the batch in hand."""
        assert self._batch is not None
        offsets = self._batch.column("offset").to_numpy()
        count = int(np.searchsorted(offsets, frontier, side="right"))
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return taken

    def refill(self) -> bool:
        """Whether there are rows in hand, after a look for more; closed when there are none."""
        while self._batch is None or not self._batch.num_rows:
            try:
                self._batch = next(self._batches, None)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                self.close()
                raise CorruptFileError(str(self._path), f"is damaged ({_line(error)})") from error
            if self._batch is None:
                self.close()
                return False
        self.last = self._batch.column("offset")[-1].as_py()
        return True

    def close(self) -> None:
        self._batches.close()
        if self._reader is not None:
            self._reader.close()

    def _read(self, file: LocalFile, partition: int, start: int, end: int) -> Any:
        rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, file.row_bytes))))
        reader = self._reader = pq.ParquetFile(file.path, page_checksum_verification=True)
        groups = _row_groups(reader, partition, start, end)
        before = -1
        for batch in reader.iter_batches(
            batch_size=rows, row_groups=groups, columns=list(COLUMNS), use_threads=False
        ):
            offsets = batch.column("offset").to_numpy()
            wanted = (
                (batch.column("partition").to_numpy() == partition) & (offsets >= start) & (offsets < end)
            )
            if not wanted.any():
                continue
            kept = batch if wanted.all() else batch.filter(pa.array(wanted))
            offsets = kept.column("offset").to_numpy()
            if offsets[0] <= before or (np.diff(offsets) <= 0).any():
                raise CorruptFileError(str(file.path), "is not in order by offset")
            before = int(offsets[-1])
            yield kept


def _row_groups(reader: pq.ParquetFile, partition: int, start: int, end: int) -> list[int]:
    """Those that may hold such rows, by their statistics."""
    bounds = {"partition": (partition, partition), "offset": (start, end - 1)}
    columns = {name: reader.schema_arrow.get_field_index(name) for name in bounds}
    found = []
    for number in range(reader.num_row_groups):
        group = reader.metadata.row_group(number)
        if all(_may_hold(group.column(columns[name]).statistics, *bounds[name]) for name in bounds):
            found.append(number)
    return found


def _may_hold(statistics: Any, low: int, high: int) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= high and statistics.max >= low)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
