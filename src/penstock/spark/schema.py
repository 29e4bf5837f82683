"""The columns: those of Spark's own Kafka source, in its order and with its types.

A user's `.schema(...)` may pick some of them. Python sources get no column pruning from Spark, so a query
over a large topic that needs only `value` saves the rest by asking for it this way.
"""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import SchemaError

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}

ARROW_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": ARROW_HEADERS,
}


def source_schema(*, headers: bool) -> StructType:
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if headers or name != "headers"]
    )


def check_schema(schema: StructType, *, headers: bool) -> None:
    """What the user asked for must be columns of the source, as they are."""
    known = source_schema(headers=headers)
    for column in schema.fields:
        if column.name not in known.names:
            hint = "; set includeHeaders=true for it" if column.name == "headers" else ""
            raise SchemaError(
                f"the source has no column {column.name}{hint}; its columns are {', '.join(known.names)}"
            )
        kind = known[column.name].dataType
        if column.dataType != kind:
            raise SchemaError(
                f"the column {column.name} is {kind.simpleString()}, not {column.dataType.simpleString()}: "
                "leave .schema() away and cast the column"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema(
        [
            pa.field(column.name, ARROW_TYPES[column.name], nullable=column.nullable)
            for column in schema.fields
        ]
    )
