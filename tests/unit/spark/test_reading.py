"""From decoded columns to what Spark takes: it compares the types to the letter."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.client.raw import TopicPartition
from penstock.records.columns import HEADERS_TYPE, Columns
from penstock.spark.options import read_options
from penstock.spark.reading import RangeReader, to_batch
from penstock.spark.schema import arrow_schema, source_schema

AT = TopicPartition("orders", 3)


def columns(*timestamps: int) -> Columns:
    count = len(timestamps)
    return Columns(
        key=pa.nulls(count, pa.binary()),
        value=pa.array([b"v"] * count, pa.binary()),
        offset=pa.array(range(count), pa.int64()),
        timestamp=pa.array(timestamps, pa.int64()),
        timestamp_type=pa.array([0] * count, pa.int32()),
        headers=pa.array([[{"key": "h", "value": b"1"}]] + [None] * (count - 1), HEADERS_TYPE),
    )


def test_types_are_what_spark_makes_of_the_schema() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = source_schema(headers=True)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    batch = to_batch(columns(1, 2), AT, arrow_schema(schema))
    assert batch.schema.equals(arrow_schema(schema))
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}], None]
    assert batch.column("topic").to_pylist() == ["orders", "orders"]
    assert batch.column("partition").to_pylist() == [3, 3]


def test_only_the_columns_asked_for() -> None:
    full = source_schema(headers=False)
    picked = arrow_schema(StructType([full["timestamp"], full["value"]]))
    assert to_batch(columns(7), AT, picked).schema.names == ["timestamp", "value"]


@pytest.mark.parametrize("timestamp", [-1, 0, 1_700_000_000_123, 2**62, -(2**62)])
def test_no_timestamp_stops_a_query(timestamp: int) -> None:
    batch = to_batch(columns(timestamp), AT, arrow_schema(source_schema(headers=True)))
    if abs(timestamp) < 2**50:
        assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [timestamp * 1000]


def test_nothing_planned_is_nothing_read() -> None:
    """Spark hands out InputPartition(None) for an empty plan."""
    options = read_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=False)
    reader = RangeReader(options, arrow_schema(source_schema(headers=False)))
    assert list(reader.read(InputPartition(None))) == []
