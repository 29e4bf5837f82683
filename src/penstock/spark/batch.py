"""Batch reads: `spark.read.format("penstock")`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.client.connect import reach
from penstock.client.raw import RawClient, RawOptions
from penstock.spark.cluster import uncompacted
from penstock.spark.filters import RowFilter, bounds_of
from penstock.spark.planning import split
from penstock.spark.ranges import batch_ranges
from penstock.spark.reading import RangePartition, RangeReader
from penstock.spark.schema import arrow_schema, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.options import ReadOptions


class _PushFilters:
    """`pushFilters`, there for sessions that push filters and invisible to those that do not.

    PySpark fails every read of a reader that overrides the method while
    spark.sql.python.filterPushdown.enabled is false (its default), and tells nobody beforehand what the
    session has. It recognises an override by `__func__`, so what this hands out carries the inherited one
    and calls ours.
    """

    def __get__(self, reader: "BatchReader | None", owner: type) -> "_PushFilters | _Pushed":
        return self if reader is None else _Pushed(reader.push)


class _Pushed:
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


class BatchReader(DataSourceReader):
    pushFilters: Any = _PushFilters()  # noqa: N815 - PySpark's name

    def __init__(self, options: "ReadOptions", schema: "StructType") -> None:
        check_schema(schema, headers=options.headers)
        self._options = options
        self._schema = schema
        self._filter = RowFilter()

    def push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes over what it fully applies; gives back the rest for Spark to do."""
        self._filter, left = RowFilter.of(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        reach(options.bootstrap)
        with RawClient(options.bootstrap, RawOptions.from_kafka(options.client)) as client:
            ranges, found = batch_ranges(client, options)
            ranges = bounds_of(client, self._filter, ranges, committed=options.committed)
            whole = uncompacted(client, {part.at.topic for part in ranges})
        cut = split(
            ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max
        )
        return [
            RangePartition(part, found.ids.get(part.at.topic), whole=part.at.topic in whole) for part in cut
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        keep = self._filter if self._filter.rows else None
        return RangeReader(self._options, arrow_schema(self._schema), keep).read(partition)
