"""What is archived of one topic, row by row, while an archiver may be at work in the same lake."""

import heapq
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from penstock.client.console.row import ConsoleRow
from penstock.spark.pipelines.archive.entries import ArchivedFile, Span
from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.topics import TopicArchive
from penstock.spark.pipelines.from_archive.files import Rows

# Each has files open and rows in hand; more of them take turns.
PARTITIONS_AT_ONCE = 32
# Compactions one after another without a row in between: that is no coincidence any more.
_VANISHED_TRIES = 10


class Archived:
    """One incarnation of a topic in a lake."""

    def __init__(
        self,
        archive: TopicArchive,
        rows: Rows,
        reload: Callable[[], Manifest],
        warn: Callable[[str], None],
        *,
        skip_corrupt: bool = False,
    ) -> None:
        self.archive = archive
        self._rows = rows
        self._reload = reload
        self._warn = warn
        self._skip_corrupt = skip_corrupt
        self._skipped: set[str] = set()

    def refresh(self) -> None:
        """See what was archived since."""
        now = self._reload().topic(self.archive.topic, self.archive.topic_id)
        if now is not None:
            self.archive = now

    def end(self, partition: int) -> int:
        """Everything below is archived, or known to be lost."""
        return self.archive.next_offsets.get(partition, 0)

    def read(self, ranges: Mapping[int, Span]) -> Iterator[ConsoleRow]:
        """The rows of these ranges: each partition by offset, and between them the oldest first."""
        waiting = sorted(ranges.items())
        for first in range(0, len(waiting), PARTITIONS_AT_ONCE):
            some = waiting[first : first + PARTITIONS_AT_ONCE]
            streams = [self._partition(partition, *span) for partition, span in some]
            yield from heapq.merge(*streams, key=lambda row: row.timestamp_ms or 0)

    def holes(self, partition: int, start: int, end: int) -> list[Span]:
        """Offsets of a range that are not archived."""
        missing, position = [], start
        for low, high in self.archive.ranges.get(partition, []):
            if low >= end:
                break
            if low > position:
                missing.append((position, low))
            position = max(position, high)
        if position < end:
            missing.append((position, end))
        return missing

    def _partition(self, partition: int, start: int, end: int) -> Iterator[ConsoleRow]:
        position, tries = start, 0
        while position < end:
            try:
                for batch in self._rows.batches(self._files(), partition, position, end):
                    for row in console_rows(self.archive.topic, batch):
                        yield row
                        position, tries = row.offset + 1, 0
            except (FileNotFoundError, CorruptFileError) as error:
                tries += 1
                self._judge(error, tries)
            else:
                return

    def _files(self) -> list[ArchivedFile]:
        return [file for path, file in self.archive.files.items() if path not in self._skipped]

    def _judge(self, error: Exception, tries: int) -> None:
        """Nothing to worry about when a compaction took the file away, or a finished round moved it."""
        before = dict(self.archive.files)
        self.refresh()
        changed = self.archive.files.keys() != before.keys() or isinstance(error, FileNotFoundError)
        # Also a file that was on its way from staging to its place while we looked in both.
        if tries == 1 or (changed and tries <= _VANISHED_TRIES):
            return
        if not isinstance(error, CorruptFileError) or not self._skip_corrupt:
            raise error
        found = [path for path, file in before.items() if _is_meant(file, error.where)]
        if not found:
            raise error
        self._skipped.update(found)
        for path in found:
            self._warn(f"left out {error.where}, with {before[path].rows} rows of {self.archive.topic}")


def _is_meant(file: ArchivedFile, where: str) -> bool:
    named = where.rpartition("topic=")[2]
    return any(path.rpartition("topic=")[2] == named for path in (file.path, file.staged) if path)


def console_rows(topic: str, batch: pa.RecordBatch) -> Iterator[ConsoleRow]:
    columns = {
        name: batch.column(name).to_pylist() for name in ("partition", "offset", "key", "value", "headers")
    }
    times = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    for index, timestamp_ms in enumerate(times.to_pylist()):
        headers = columns["headers"][index] or ()
        yield ConsoleRow(
            topic=topic,
            partition=columns["partition"][index],
            offset=columns["offset"][index],
            timestamp_ms=timestamp_ms,
            key=columns["key"][index],
            value=columns["value"][index],
            headers=tuple((entry["key"], entry["value"]) for entry in headers),
        )
