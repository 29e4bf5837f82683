"""What a task does: one range of one partition, from whole record batches to Arrow, batch by batch."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
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
from penstock.records.batch import read_header
from penstock.records.columns.decode import Columns, decode_in_parts
from penstock.records.compression import Unpacker
from penstock.spark.errors import DataLossError, HoleError
from penstock.spark.holes import Span, Walk, told
from penstock.spark.loss import LossPolicy
from penstock.spark.planning import Range
from penstock.spark.schema import ARROW_HEADERS, ARROW_TYPES

if TYPE_CHECKING:
    from penstock.spark.filters import RowFilter
    from penstock.spark.options import ReadOptions


# The latest time, and the earliest with a minus, that Spark's microseconds can tell.
_MS_MAX = (2**63 - 1) // 1000


class RangePartition(InputPartition):
    """A range on its way to a task. `topic_id`: the topic the offsets were planned for, where brokers have ids.

    `whole`: the log has a batch for every offset, or has lost it.
    """

    def __init__(self, part: Range, topic_id: str | None, *, whole: bool = False) -> None:
        super().__init__(part)
        self.part = part
        self.topic_id = topic_id
        self.whole = whole


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
                yield from self._read(client, part, partition, loss)
            except TopicRecreatedError:
                loss.report(
                    f"topic {part.at.topic} was deleted and made anew before {part.at} was read up to {part.end}"
                )
            except (UnknownTopicError, UnknownPartitionError):
                loss.report(f"{part.at} was deleted while it was read up to offset {part.end}")
            except _OtherEpochError as error:
                # Part of it is read already: the archive, which asks for epochs, begins the whole range again.
                raise DataLossError(str(error)) from error
            except OffsetOutOfRangeError as error:
                # Retention was faster: what is left of the range begins where the log does now.
                loss.report(
                    f"{part.at} has no offset {error.offset} any more, it begins at {error.log_start}"
                )
                if error.offset < error.log_start < part.end:
                    left = Range(part.at, error.log_start, part.end)
                    yield from self._read(client, left, partition, loss)

    def _read(
        self, client: RawClient, part: Range, partition: RangePartition, loss: LossPolicy
    ) -> Iterator[pa.RecordBatch]:
        with_headers = "headers" in self.schema.names
        wanted = None if partition.topic_id is None else uuid.UUID(partition.topic_id)
        unpacker = Unpacker()
        epochs = self.options.epochs.get(part.at, ())
        walk = Walk(part) if partition.whole else None
        for fetched in client.fetch(
            part.at, part.start, part.end, committed=self.options.committed, topic_id=wanted
        ):
            if epochs:
                check_epochs(fetched.records, part, epochs)
            if walk is not None:
                self._judge(part.at, walk.over(fetched.records), loss)
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
        if walk is not None:
            self._judge(part.at, walk.rest(), loss)

    def _judge(self, at: TopicPartition, holes: Iterable[Span], loss: LossPolicy) -> None:
        known = self.options.holes.get(at, ())
        for hole in holes:
            if not any(start <= hole[0] and hole[1] <= end for start, end in known):
                loss.report(told(at, hole), HoleError)


class _OtherEpochError(Exception):
    """A record of another leader than the one that was meant has an offset."""


def check_epochs(records: memoryview, part: Range, epochs: Sequence[tuple[int, int]]) -> None:
    """Every batch is of the epoch that is said to have its offsets: another leader may come at any time."""
    position = 0
    while position < len(records):
        header = read_header(records, position)
        position += header.size_bytes
        if header.next_offset <= part.start or header.base_offset >= part.end:
            continue
        offset = max(header.base_offset, part.start)
        wanted = next((epoch for epoch, end in epochs if offset < end), None)
        if wanted is not None and header.leader_epoch != wanted:
            raise _OtherEpochError(
                f"{part.at} has at offset {offset} a record of leader epoch {header.leader_epoch}, not {wanted}: "
                "it got another leader while it was read"
            )


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
    """A producer may send any 64-bit number: one mad clock must not stop a query, nor become another time."""
    edges = pc.min_max(milliseconds)
    if len(milliseconds) and (edges["min"].as_py() < -_MS_MAX or edges["max"].as_py() > _MS_MAX):
        milliseconds = pc.max_element_wise(pc.min_element_wise(milliseconds, _MS_MAX), -_MS_MAX)
    instants = milliseconds.cast(pa.timestamp("ms", tz="UTC"))
    return instants.cast(ARROW_TYPES["timestamp"])
