"""Filters that Spark hands down: what is pruned, what is checked row by row, what Spark keeps."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from tests.unit.spark.fake_cluster import FakeCluster, FakeLog

from penstock.client.raw import TopicPartition
from penstock.spark.batch import BatchReader
from penstock.spark.filters import RowFilter, bounds_of
from penstock.spark.options import read_options
from penstock.spark.planning import Range
from penstock.spark.schema import source_schema

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
RANGES = [Range(A, 0, 100), Range(B, 50, 150)]
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
def cluster() -> FakeCluster:
    times = tuple(range(0, 2_000, 20))
    return FakeCluster({A: FakeLog(0, 100, times=times), B: FakeLog(50, 150, times=(5,) * 100)})


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (EqualTo(("partition",), 1), [Range(B, 50, 150)]),
        (In(("partition",), (0, 7)), [Range(A, 0, 100)]),
        (LessThan(("partition",), 1), [Range(A, 0, 100)]),
        (EqualTo(("topic",), "b"), [Range(B, 50, 150)]),
        (In(("topic",), ("a", "c")), [Range(A, 0, 100)]),
        (EqualTo(("offset",), 60), [Range(A, 60, 61), Range(B, 60, 61)]),
        (GreaterThan(("offset",), 98), [Range(A, 99, 100), Range(B, 99, 150)]),
        (GreaterThanOrEqual(("offset",), 100), [Range(B, 100, 150)]),
        (LessThan(("offset",), 50), [Range(A, 0, 50)]),
        (LessThanOrEqual(("offset",), 50), [Range(A, 0, 51), Range(B, 50, 51)]),
        (In(("offset",), (10, 20)), [Range(A, 10, 21)]),
        (GreaterThanOrEqual(("timestamp",), SECOND), [Range(A, 50, 100)]),
        (LessThan(("timestamp",), SECOND), RANGES),
    ],
)
def test_ranges_are_pruned(cluster: FakeCluster, given: Filter, left: list[Range]) -> None:
    wanted, kept_by_spark = RowFilter.of([given])
    assert kept_by_spark == []
    assert bounds_of(cluster, wanted, RANGES, committed=False) == left


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), None),
        Not(EqualTo(("offset",), 1)),
        GreaterThan(("topic",), "a"),
        StringStartsWith(("topic",), "a"),
        LessThan(("timestamp",), datetime(2020, 1, 1)),  # what TIMESTAMP_NTZ gives
        In(("timestamp",), (SECOND,)),
        In(("offset",), (None,)),
        EqualTo(("partition",), True),
        IsNotNull(("key",)),
    ],
)
def test_the_rest_stays_with_spark(given: Filter) -> None:
    wanted, left = RowFilter.of([given])
    assert left == [given]
    assert wanted.conditions == ()


def test_columns_that_are_never_null_need_no_check() -> None:
    assert RowFilter.of([IsNotNull(("offset",)), IsNotNull(("timestamp",))]) == (RowFilter(), [])


def test_rows_are_checked_where_ranges_cannot_tell() -> None:
    wanted, _ = RowFilter.of(
        [GreaterThan(("timestamp",), SECOND), In(("offset",), (1, 3, 4)), LessThan(("partition",), 5)]
    )
    times = pa.array([1_000_001, 1_000_000, 999_999, 1_000_001, 2_000_000], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({"offset": pa.array(range(5), pa.int64()), "timestamp": times})
    assert wanted.apply(batch).column("offset").to_pylist() == [3, 4]


def test_sessions_without_push_down_see_no_override() -> None:
    """PySpark refuses readers that override pushFilters there; see `_PushFilters`."""
    options = read_options({"kafka.bootstrap.servers": "b:1", "subscribe": "a"}, streaming=False)
    reader = BatchReader(options, source_schema(headers=False))
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    unknown = EqualTo(("value",), b"x")
    assert list(reader.pushFilters([EqualTo(("partition",), 1), unknown])) == [unknown]
