"""Columns, both ways."""

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from penstock.spark.errors import SchemaError
from penstock.spark.schema import arrow_schema, check_schema, source_schema
from penstock.spark.sink_schema import sink_columns


def test_the_columns_of_the_official_source() -> None:
    assert source_schema(headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in source_schema(headers=False).names


def test_a_user_may_pick_columns() -> None:
    full = source_schema(headers=False)
    picked = StructType([full["offset"], full["value"]])
    check_schema(picked, headers=False)
    assert arrow_schema(picked).names == ["offset", "value"]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (StructField("amount", LongType()), "the source has no column amount; its columns are key, value"),
        (StructField("headers", LongType()), "set includeHeaders=true"),
        (StructField("value", StringType()), "the column value is binary, not string"),
    ],
)
def test_a_schema_that_is_not_the_sources(column: StructField, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_schema(StructType([column]), headers=False)


def test_a_frame_from_a_topic_can_be_written_as_it_is() -> None:
    found = sink_columns(source_schema(headers=True), topic_given=False, headers=True)
    assert (found.key, found.value, found.topic) == ("key", "value", "topic")
    assert (found.partition, found.headers, found.timestamp) == ("partition", "headers", "timestamp")


def test_the_option_outranks_the_column() -> None:
    assert sink_columns(source_schema(headers=False), topic_given=True, headers=True).topic is None
    assert sink_columns(source_schema(headers=True), topic_given=True, headers=False).headers is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("key", StringType())], "there is no column value, which every record needs; there are key"),
        ([("value", IntegerType())], "the column value is int, but must be binary or string"),
        ([("Value", StringType()), ("value", StringType())], "Value and value both mean value"),
        ([("value", StringType()), ("headers", StringType())], "headers is string, but must be array<struct"),
        ([("value", StringType()), ("partition", LongType())], "partition is bigint, but must be int"),
        ([("value", StringType()), ("timestamp", LongType())], "timestamp is bigint, but must be timestamp"),
    ],
)
def test_a_frame_that_is_no_records(columns: list[tuple[str, object]], said: str) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns])
    with pytest.raises(SchemaError, match=said):
        sink_columns(schema, topic_given=True, headers=True)


def test_no_topic_anywhere() -> None:
    with pytest.raises(SchemaError, match="Set the option topic"):
        sink_columns(StructType([StructField("value", StringType())]), topic_given=False, headers=True)
