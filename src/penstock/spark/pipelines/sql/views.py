"""A topic as a table: its record's columns, and the fields of its values.

    text    key, value, timestamp, partition, offset, headers
    json    key, the fields, timestamp, partition, offset, headers [, _corrupt]

Keys and header values are strings. Where a field has the name of one of the record's columns, the field wins and
the record's column gets an underscore: a field `timestamp` leaves `_timestamp` for the record's own.

A value is malformed when it is not JSON, not an object, or has something else where the schema says a number or a
time. Such records are left out and counted (`skip`), kept with what could be read and their text in `_corrupt`
(`keep`), or end the query (`fail`). A record without a value (a tombstone) is a row with null fields.
"""

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program has for it
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.spark.pipelines.sql.explain import explained, shortened
from penstock.spark.pipelines.sql.settings import (
    MALFORMED_METRIC,
    Malformed,
    SqlError,
    SqlSettings,
    Watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CORRUPT = "_corrupt"
_PARSED = "_parsed"
_HEADERS = "transform(headers, h -> struct(h.key AS key, CAST(h.value AS STRING) AS value))"


def parse_schema(text: str, topic: str) -> StructType:
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        said = shortened(str(error), text)
        raise SqlError(
            f"--schema for {topic}: {said}; write it as 'id INT, amount DOUBLE, at TIMESTAMP'"
        ) from None
    if not isinstance(schema, StructType):
        raise SqlError(
            f"--schema for {topic} has no columns; write it as 'id INT, amount DOUBLE, at TIMESTAMP'"
        )
    names = [name.lower() for name in schema.names]
    for name in schema.names:
        if names.count(name.lower()) > 1:
            raise SqlError(
                f"--schema for {topic} has the column {name} twice: SQL does not see upper and lower case"
            )
        if name.lower() == CORRUPT:
            raise SqlError(
                f"--schema for {topic} has a column {CORRUPT}, which is for malformed records: rename it"
            )
    return schema


def schema_text(schema: StructType) -> str:
    """As --schema takes it."""
    return ", ".join(f"{_quoted(column.name)} {_kind(column.dataType)}" for column in schema.fields)


def _kind(kind: DataType) -> str:
    text = kind.simpleString()
    return text if "<" in text else text.upper()  # the names of nested fields are in it


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"


def stream_of(spark: "SparkSession", bootstrap: str, topic: str, settings: SqlSettings) -> "DataFrame":
    reader = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", str(settings.start))
        .option("includeHeaders", "true")
    )
    return reader.options(**settings.options).load()


def view_of(
    records: "DataFrame", topic: str, schema: StructType | None, settings: SqlSettings
) -> "DataFrame":
    """`schema`: the fields of JSON values; None for text."""
    frame = _text(records) if schema is None else _json(records, topic, schema, settings.malformed)
    watermark = settings.watermark_of(topic)
    return frame if watermark is None else _watermarked(frame, topic, watermark, settings)


def _text(records: "DataFrame") -> "DataFrame":
    value = F.col("value").cast("string").alias("value")
    return records.select(_key("key"), value, *_tail(frozenset()))


def _json(records: "DataFrame", topic: str, schema: StructType, malformed: Malformed) -> "DataFrame":
    with_text = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    mode = "FAILFAST" if malformed is Malformed.FAIL else "PERMISSIVE"
    options = {"mode": mode, "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(F.col("value").cast("string"), with_text, options).alias(_PARSED)
    frame = records.select("key", parsed, "timestamp", "partition", "offset", "headers")
    corrupt = F.col(f"{_PARSED}.{CORRUPT}")
    # Counted where every record passes; Spark hands the count over with the progress of each batch.
    frame = frame.observe(f"{MALFORMED_METRIC}{topic}", F.count(corrupt).alias("malformed"))
    if malformed is Malformed.SKIP:
        frame = frame.where(corrupt.isNull())
    taken = frozenset(name.lower() for name in schema.names)
    fields = [F.col(_PARSED).getField(name).alias(name) for name in schema.names]
    kept = [corrupt.alias(CORRUPT)] if malformed is Malformed.KEEP else []
    return frame.select(_key(_free("key", taken)), *fields, *_tail(taken), *kept)


def _key(name: str) -> "Column":
    return F.col("key").cast("string").alias(name)


def _tail(taken: frozenset[str]) -> list["Column"]:
    columns = [F.col(name).alias(_free(name, taken)) for name in ("timestamp", "partition", "offset")]
    return [*columns, F.expr(_HEADERS).alias(_free("headers", taken))]


def _free(name: str, taken: frozenset[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _watermarked(frame: "DataFrame", topic: str, watermark: Watermark, settings: SqlSettings) -> "DataFrame":
    by_name = {name.lower(): name for name in frame.columns}
    column = by_name.get(watermark.column.lower())
    if column is None:
        if topic not in settings.watermark.of and settings.watermark.everywhere is not None:
            # Given for every topic: those without the column have none. That one of them has it is checked outside.
            return frame
        raise SqlError(
            f"--watermark for {topic}: there is no column {watermark.column}; there are {', '.join(frame.columns)}"
        )
    try:
        return frame.withWatermark(column, watermark.delay)
    except PySparkException as error:
        raise explained(error) from None
