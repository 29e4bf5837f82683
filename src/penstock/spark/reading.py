"""What a task does: one range of one partition, from whole record batches to Arrow, batch by batch."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.raw import (
    OffsetOutOfRangeError,
    RawClient,
    RawOptions,
    TopicPartition,
    TopicRecreatedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from penstock.records.columns import Columns, decode_in_parts
from penstock.records.compression import Unpacker
from penstock.spark.loss import LossPolicy
from penstock.spark.planning import Range
from penstock.spark.schema import ARROW_HEADERS, ARROW_TYPES

if TYPE_CHECKING:
    from penstock.spark.filters import RowFilter
    from penstock.spark.options import ReadOptions


class RangePartition(InputPartition):
    """A range on its way to a task. `topic_id`: the topic the offsets were planned for, where brokers have ids."""

    def __init__(self, part: Range, topic_id: str | None) -> None:
        super().__init__(part)
        self.part = part
        self.topic_id = topic_id


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Picklable: it travels to the executors with the query."""

    options: "ReadOptions"
    schema: pa.Schema
    keep: "RowFilter | None" = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark hands out InputPartition(None) when there was nothing to plan.
        if not isinstance(partition, RangePartition):
            return
        part, loss = partition.part, LossPolicy(fail=self.options.fail_on_data_loss)
        with RawClient(self.options.bootstrap, RawOptions.from_kafka(self.options.client)) as client:
            try:
                yield from self._read(client, part, partition.topic_id)
            except TopicRecreatedError:
                loss.report(
                    f"topic {part.at.topic} was deleted and made anew before {part.at} was read up to {part.end}"
                )
            except (UnknownTopicError, UnknownPartitionError):
                loss.report(f"{part.at} was deleted while it was read up to offset {part.end}")
            except OffsetOutOfRangeError as error:
                # Retention was faster: what is left of the range begins where the log does now.
                loss.report(
                    f"{part.at} has no offset {error.offset} any more, it begins at {error.log_start}"
                )
                if error.offset < error.log_start < part.end:
                    left = Range(part.at, error.log_start, part.end)
                    yield from self._read(client, left, partition.topic_id)

    def _read(self, client: RawClient, part: Range, topic_id: str | None) -> Iterator[pa.RecordBatch]:
        with_headers = "headers" in self.schema.names
        wanted = None if topic_id is None else uuid.UUID(topic_id)
        unpacker = Unpacker()
        for fetched in client.fetch(
            part.at, part.start, part.end, committed=self.options.committed, topic_id=wanted
        ):
            for columns in decode_in_parts(
                fetched.records,
                first=part.start,
                end=part.end,
                aborted=fetched.aborted,
                headers=with_headers,
                unpacker=unpacker,
            ):
                batch = to_batch(columns, part.at, self.schema)
                if self.keep is not None:
                    batch = self.keep.apply(batch)
                if batch.num_rows:
                    yield batch


def to_batch(columns: Columns, at: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that `schema` has, as Spark wants them: it compares the types to the letter."""
    rows = len(columns.offset)
    headers = columns.headers
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(at.topic, pa.string()), rows),
        "partition": lambda: pa.repeat(pa.scalar(at.partition, pa.int32()), rows),
        "timestamp": lambda: _microseconds(columns.timestamp),
        "timestampType": lambda: columns.timestamp_type,
        "headers": lambda: None if headers is None else headers.cast(ARROW_HEADERS),
        "key": lambda: columns.key,
        "value": lambda: columns.value,
        "offset": lambda: columns.offset,
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in schema.names], schema=schema)


def _microseconds(milliseconds: pa.Int64Array) -> pa.TimestampArray:
    # Unchecked on purpose: a producer may send any 64-bit number, and one mad clock must not stop a query.
    instants = milliseconds.cast(pa.timestamp("ms", tz="UTC"))
    return instants.cast(ARROW_TYPES["timestamp"], safe=False)
