"""How rows get from Spark to `Writer`, and its results back: a side door of the data source's sink.

Spark calls `commit` in a Python process of its own beside the driver; the results come back through a small file.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.spark.pipelines.replaying.writing import Done, Writer
from penstock.spark.source import REPLAY_OPTION


@dataclass(frozen=True, slots=True)
class TaskDone(WriterCommitMessage):
    partitions: tuple[Done, ...]


class ReplayWriter(DataSourceArrowWriter):
    def __init__(self, writer: Writer, results: str) -> None:
        self._writer = writer
        self._results = results

    @classmethod
    def of(cls, plan: str) -> "ReplayWriter":
        tree = json.loads(plan)
        return cls(Writer(**tree["writer"]), tree["results"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        return TaskDone(tuple(self._writer.write(iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [
            asdict(partition)
            for message in messages
            if isinstance(message, TaskDone)
            for partition in message.partitions
        ]
        Path(self._results).write_text(json.dumps(done), encoding="utf-8")


def write(frame: DataFrame, writer: Writer) -> list[Done]:
    """The rows of each task in their order; what was done for each partition."""
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder:
        results = Path(folder, "results.json")
        plan = json.dumps({"writer": asdict(writer), "results": str(results)})
        frame.write.format("penstock").mode("append").option(REPLAY_OPTION, plan).save()
        return [Done(**load) for load in json.loads(results.read_text(encoding="utf-8"))]
