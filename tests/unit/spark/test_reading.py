"""From decoded columns to what Spark takes: it compares the types to the letter."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType
from tests.unit.client.raw.fake import batch_at

from penstock.client.raw import Fetched, RawClient, TopicPartition
from penstock.records.batch import stamp
from penstock.records.columns.decode import HEADERS_TYPE, Columns
from penstock.spark.errors import DataLossError
from penstock.spark.options import read_options
from penstock.spark.planning import Range
from penstock.spark.reading import RangePartition, RangeReader, check_epochs, to_batch
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


@pytest.mark.parametrize("timestamp", [-1, 0, 1_700_000_000_123, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_no_timestamp_stops_a_query(timestamp: int) -> None:
    batch = to_batch(columns(timestamp), AT, arrow_schema(source_schema(headers=True)))
    # What is beyond all times is the first or the last of them.
    most = (2**63 - 1) // 1000
    expected = max(-most, min(most, timestamp)) * 1000
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected]


def test_nothing_planned_is_nothing_read() -> None:
    """Spark hands out InputPartition(None) for an empty plan."""
    options = read_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=False)
    reader = RangeReader(options, arrow_schema(source_schema(headers=False)))
    assert list(reader.read(InputPartition(None))) == []


def stamped(*batches: tuple[int, int]) -> memoryview:
    """Batches of two records each, as (first offset, leader epoch)."""
    records = bytearray()
    for offset, epoch in batches:
        batch = bytearray(batch_at(offset, [b"v"] * 2))
        stamp(batch, 0, offset, epoch)
        records += batch
    return memoryview(records)


def test_a_record_of_another_leader_than_the_one_meant_is_not_taken() -> None:
    part, epochs = Range(AT, 11, 16), ((3, 12), (5, 16))
    check_epochs(stamped((10, 3), (12, 5), (14, 5)), part, epochs)
    # What lies outside of the range may be of anybody.
    check_epochs(stamped((8, 1), (10, 3), (12, 5), (14, 5), (16, 9)), part, epochs)
    for other in ([(10, 4)], [(10, 3), (12, 4)], [(10, 3), (12, 5), (14, 6)], [(10, 5)]):
        with pytest.raises(Exception, match="another leader while it was read"):
            check_epochs(stamped(*other), part, epochs)


def test_it_ends_the_task_even_where_loss_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of the range may be written already."""
    given = {
        "kafka.bootstrap.servers": "nowhere:1",
        "subscribe": "orders",
        "failOnDataLoss": "false",
        "penstock.epochs": '{"orders": {"3": [[3, 20]]}}',
    }
    monkeypatch.setattr(RawClient, "fetch", lambda *_, **__: iter([Fetched(stamped((10, 4)), (), 0, 20, 20)]))
    reader = RangeReader(read_options(given, streaming=False), arrow_schema(source_schema(headers=False)))
    with pytest.raises(DataLossError, match="leader epoch 4, not 3"):
        list(reader.read(RangePartition(Range(AT, 10, 20), None)))
