"""The sink: `df.write.format("penstock")` and `df.writeStream.format("penstock")`, at least once.

A task encodes its Arrow batches into whole record batches and waits until all of them are acknowledged. Nothing is
left to commit afterwards: a task that is repeated writes its rows again, and one that was cancelled (Spark may end its
iterator early, as if there were no more rows) has merely written some rows that its repetition writes too.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.connect import reach
from penstock.client.raw import RawClient, RawOptions, TopicPartition, UnknownPartitionError
from penstock.records.columns.encode import encode, partition_of
from penstock.spark.errors import OptionError, SchemaError
from penstock.spark.sink_schema import SinkColumns, sink_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.spark.options import WriteOptions

# Rows without a key go to one partition for at least so long, then to the next: full batches, and an even spread.
_STICKY_ROWS = 1_000
# A batch in few runs is sent run by run, as it lies.
_RUNS_MAX = 16


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task has written; nothing depends on it."""

    rows: int


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionError('a topic can only be appended to: use mode("append")')


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: "WriteOptions", schema: "StructType") -> None:
        self._sink = Sink.of(options, schema)
        reach(options.bootstrap)  # a wrong address is said before any task starts; a stream is more patient

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: "WriteOptions", schema: "StructType") -> None:
        self._sink = Sink.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.write(iterator)


@dataclass(frozen=True, slots=True)
class Sink:
    """Picklable: it travels to the executors with the query."""

    options: "WriteOptions"
    columns: SinkColumns

    @classmethod
    def of(cls, options: "WriteOptions", schema: "StructType") -> "Sink":
        RawOptions.from_kafka(options.client)  # what is wrong with them is said before any task starts
        topic_given = options.topic is not None
        return cls(options, sink_columns(schema, topic_given=topic_given, headers=options.headers))

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = 0
        settings = RawOptions.from_kafka(self.options.client)
        with RawClient(self.options.bootstrap, settings) as client, client.producer() as producer:
            spread = Spread(client)
            for batch in batches:
                for topic, of_topic in self._by_topic(batch):
                    for at, part in spread.by_partition(topic, of_topic, self.columns):
                        for encoded in self._encode(part, settings):
                            producer.send(at, encoded)
                rows += batch.num_rows
            producer.flush()
        return Written(rows)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self.options.topic is not None:
            yield self.options.topic, batch
            return
        topics = batch.column(self.columns.topic)
        if topics.null_count:
            raise SchemaError(
                "the column topic is null in a row: every row needs a topic, or set the option topic"
            )
        for topic in pc.unique(topics):
            yield topic.as_py(), batch.filter(pc.equal(topics, topic))

    def _encode(self, batch: pa.RecordBatch, settings: RawOptions) -> Iterator[bytearray]:
        columns, now_ms = self.columns, int(time.time() * 1000)
        timestamps = None
        if columns.timestamp is not None:
            in_ms = batch.column(columns.timestamp).cast(pa.timestamp("ms", tz="UTC"), safe=False)
            timestamps = in_ms.cast(pa.int64())
        return encode(
            None if columns.key is None else _bytes(batch.column(columns.key)),
            _bytes(batch.column(columns.value)),
            timestamp=timestamps,
            headers=None if columns.headers is None else batch.column(columns.headers),
            compression=settings.compression,
            batch_bytes_max=settings.batch_bytes,
            timestamp_default=now_ms,
        )


def _bytes(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _cuts(partitions: NDArray[np.int32]) -> list[int]:
    """Where runs of the same partition begin, and the end."""
    return [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]


class Spread:
    """Which row goes to which partition; remembers, for one task, how many each topic has."""

    def __init__(self, client: RawClient, dice: random.Random | None = None) -> None:
        self._client = client
        self._partitions: dict[str, int] = {}
        # Tasks begin anywhere: a hundred small ones would otherwise fill the first partition.
        self._without_key = (dice or random.Random()).randrange(1 << 16) * _STICKY_ROWS

    def by_partition(
        self, topic: str, batch: pa.RecordBatch, columns: SinkColumns
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The rows of each partition, in the order they came."""
        partitions = self._assign(topic, batch, columns)
        if len(partitions) == 0:
            return
        if len(cuts := _cuts(partitions)) <= _RUNS_MAX:
            # Slices copy nothing; putting rows together costs as much as encoding.
            for start, stop in pairwise(cuts):
                yield TopicPartition(topic, int(partitions[start])), batch.slice(start, stop - start)
            return
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        for start, stop in pairwise(_cuts(ordered)):
            yield TopicPartition(topic, int(ordered[start])), batch.take(pa.array(order[start:stop]))

    def _assign(self, topic: str, batch: pa.RecordBatch, columns: SinkColumns) -> NDArray[np.int32]:
        count = self._count(topic)
        if columns.key is None:
            partitions = np.full(batch.num_rows, -1, np.int32)
        else:
            partitions = partition_of(_bytes(batch.column(columns.key)), count)
        if columns.partition is not None:
            partitions = self._as_told(topic, batch.column(columns.partition), partitions, count)
        nowhere = np.flatnonzero(partitions < 0)
        if len(nowhere):
            sticky = max(_STICKY_ROWS, -(-len(nowhere) // count))
            partitions[nowhere] = (
                self._without_key // _STICKY_ROWS + np.arange(len(nowhere)) // sticky
            ) % count
            self._without_key += len(nowhere)
        return partitions

    @staticmethod
    def _as_told(
        topic: str, told: pa.Int32Array, otherwise: NDArray[np.int32], count: int
    ) -> NDArray[np.int32]:
        given = ~np.asarray(told.is_null())
        numbers = np.asarray(told.fill_null(0)).astype(np.int32)
        wrong = numbers[given & ((numbers < 0) | (numbers >= count))]
        if len(wrong):
            raise UnknownPartitionError(TopicPartition(topic, int(wrong[0])), tuple(range(count)))
        return np.where(given, numbers, otherwise).astype(np.int32)

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._client.describe([topic])[topic].partitions)
        return self._partitions[topic]
