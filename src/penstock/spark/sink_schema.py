"""Which columns of a DataFrame become which part of a record.

    value       string or binary; required           key         string or binary
    topic       string; or the option `topic`        partition   int; null: by the key, as Kafka does it
    headers     array<struct<key:string,value:binary>>            timestamp   timestamp; null: now

Other columns are left out, as Spark's own Kafka sink does it: what was read from a topic can be written to another
as it is. A DataFrame from a topic also has `partition`, and keeps it that way; drop the column to spread by key.
"""

from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.errors import SchemaError
from penstock.spark.schema import HEADERS_TYPE

_BYTES: tuple[DataType, ...] = (BinaryType(), StringType())
_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS_TYPE,),
    "timestamp": (TimestampType(),),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The names as the DataFrame spells them; None where it has no such column, or it is not wanted."""

    value: str
    key: str | None
    topic: str | None
    partition: str | None
    headers: str | None
    timestamp: str | None


def sink_columns(schema: StructType, *, topic_given: bool, headers: bool) -> SinkColumns:
    """SchemaError names what is missing or has a type that no record can hold."""
    found: dict[str, str] = {}
    for column in schema.fields:
        # Column names are case-insensitive in Spark unless told otherwise; two that differ only there are a mistake.
        role = column.name.lower()
        if role not in _ALLOWED or (role == "headers" and not headers) or (role == "topic" and topic_given):
            continue
        if role in found:
            raise SchemaError(
                f"the columns {found[role]} and {column.name} both mean {role}: drop one of them"
            )
        if not any(_same(column.dataType, allowed) for allowed in _ALLOWED[role]):
            wanted = " or ".join(allowed.simpleString() for allowed in _ALLOWED[role])
            raise SchemaError(
                f"the column {column.name} is {column.dataType.simpleString()}, but must be {wanted}: cast it"
            )
        found[role] = column.name
    if "value" not in found:
        raise SchemaError(
            f"there is no column value, which every record needs; there are {', '.join(schema.names) or 'none'}"
        )
    if "topic" not in found and not topic_given:
        raise SchemaError("where to? Set the option topic, or have a column topic")
    return SinkColumns(
        value=found["value"],
        key=found.get("key"),
        topic=found.get("topic"),
        partition=found.get("partition"),
        headers=found.get("headers"),
        timestamp=found.get("timestamp"),
    )


def _same(given: DataType, allowed: DataType) -> bool:
    """Types without their nullability: Arrow has nulls anywhere."""
    return given.simpleString() == allowed.simpleString()
