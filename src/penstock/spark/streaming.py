"""Streams: `spark.readStream.format("penstock")`.

Spark keeps one reader per query in a process beside the driver and asks it, batch after batch: where does the
next batch end (`latestOffset`), and which ranges is that (`partitions`)? Spark writes the answer of the first
question to the checkpoint before it asks the second, so a batch is replayed with the same ends. Records are
read by the tasks alone.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.connect import reach
from penstock.client.raw import EARLIEST, LATEST, RawClient, RawOptions
from penstock.spark.cluster import Found, edges, find, firsts, resolve, served, uncompacted
from penstock.spark.loss import LossPolicy
from penstock.spark.offsets import Offsets, StreamOffset, to_tree
from penstock.spark.planning import limit_rows, split
from penstock.spark.ranges import advance, fresh, gone, retired, stream_ranges
from penstock.spark.reading import RangePartition, RangeReader
from penstock.spark.schema import arrow_schema, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.options import ReadOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: "ReadOptions", schema: "StructType") -> None:
        check_schema(schema, headers=options.headers)
        self._options = options
        self._schema = schema
        self._loss = LossPolicy(fail=options.fail_on_data_loss)
        self._client: RawClient | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_trigger_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks: connections stay here."""
        return self.__dict__ | {"_client": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name, as all below
        options = self._options
        found = find(self._cluster, options.subscription)
        offsets = resolve(
            self._cluster,
            options.starting,
            found.partitions,
            committed=options.committed,
            latest_when_none=options.latest_when_no_timestamp,
        )
        return StreamOffset(offsets, found.ids, first=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.trigger_rows_max is not None:
            return ReadMaxRows(self._options.trigger_rows_max)
        if self._options.trigger_rows_min is not None:
            return ReadMinRows(self._options.trigger_rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest_of(self._find())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin_at = StreamOffset.from_json(start)
        now = self._find()
        self._latest = self._latest_of(now)
        if shorter := {at.topic for at, end in self._latest.items() if end < begin_at.at.get(at, 0)}:
            # Perhaps only one who leads no more, and has not heard of it, says so.
            self._cluster.hear_all(shorter)
            now = self._find()
            self._latest = self._latest_of(now)
        earliest = edges(self._cluster, fresh(begin_at, now), EARLIEST)
        left = gone(begin_at, now)
        ended = retired(begin_at, now, self._cluster.retirements(left) if left else {}, self._loss)
        begins, ends, ids = advance(begin_at, now, earliest, self._latest, self._loss)
        if self._target is not None:
            ends = _capped(begin_at, begins, ends, self._target)
        if self._should_wait(begin_at, begins, ends, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limit_rows(begins, ends, limit.max_rows)
        self._last_trigger_s = time.monotonic()
        if begin_at.first:
            # Never equal to `start`, not even with nothing to read: an empty first batch pins in the checkpoint
            # what "latest" was when the query began, for the case that it is stopped before the first record.
            return StreamOffset(ends, ids, origin=begin_at.at, retired=ended).to_json()
        if ends == begin_at.at and ids == begin_at.ids and ended == begin_at.retired:
            return start
        return StreamOffset(ends, ids, retired=ended).to_json()

    def _should_wait(self, start: StreamOffset, begins: Offsets, ends: Offsets, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger: not before so many are there, or maxTriggerDelay is over, or the query ends."""
        rows_min = self._options.trigger_rows_min
        if rows_min is None or self._target is not None or isinstance(limit, ReadAllAvailable) or start.first:
            return False
        if self._last_trigger_s is None:
            return False
        waited_ms = (time.monotonic() - self._last_trigger_s) * 1000
        there = sum(max(0, ends[at] - begins[at]) for at in ends)
        return there < rows_min and waited_ms < self._options.trigger_delay_ms_max

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else to_tree(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            # A batch for another source of the query, or for a watermark. `end` may have an "@from" still.
            return []
        begin_at, end_at = StreamOffset.from_json(start), StreamOffset.from_json(end)
        now = self._find()
        there = [at for at in now.partitions if at in end_at.at]
        earliest = edges(self._cluster, there, EARLIEST)
        begins = begin_at.at if end_at.origin is None else end_at.origin
        unread = {at: begins[at] for at in there if at in begins and begins[at] < end_at.at[at]}
        nothing_lost = served(self._cluster, unread, earliest)
        first = firsts(self._cluster, {at: earliest[at] for at in there if at not in begins})
        cut = split(
            stream_ranges(begin_at, end_at, now, earliest, self._loss, nothing_lost, first),
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        whole = uncompacted(self._cluster, {part.at.topic for part in cut})
        return [
            RangePartition(part, end_at.ids.get(part.at.topic), whole=part.at.topic in whole) for part in cut
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return RangeReader(self._options, arrow_schema(self._schema)).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is the only place that knows how far the query is."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def _cluster(self) -> RawClient:
        if self._client is None:
            reach(self._options.bootstrap)  # a wrong address is said at once, not after a minute
            self._client = RawClient(self._options.bootstrap, RawOptions.from_kafka(self._options.client))
        return self._client

    def _find(self) -> Found:
        return find(self._cluster, self._options.subscription, missing_ok=True)

    def _latest_of(self, now: Found) -> Offsets:
        return edges(self._cluster, now.partitions, LATEST, committed=self._options.committed)


def _capped(start: StreamOffset, begins: Offsets, ends: Offsets, target: Offsets) -> Offsets:
    """No further than the target of AvailableNow: partitions that came after it wait for the next run."""
    capped = {}
    for at, until in ends.items():
        if at in target:
            # `until` may be before `begins` (a log that was cut off): that is not the target's doing.
            capped[at] = min(until, max(target[at], begins[at]))
        elif at in start.at:
            capped[at] = begins[at]
    return capped
