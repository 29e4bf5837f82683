"""Columns of a topic without a schema: inferred from its newest records, as Spark infers those of JSON files."""

from typing import TYPE_CHECKING, Any

from penstock.client.raw import EARLIEST, LATEST, RawClient, TopicPartition
from penstock.records.columns.decode import decode
from penstock.spark.pipelines.sql.settings import SqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SAMPLE_RECORDS = 1000
# Records may be large: enough of them is enough.
SAMPLE_BYTES = 8 * 1024 * 1024


def newest_values(client: RawClient, topic: str, partitions: tuple[int, ...]) -> list[str]:
    """Values of up to SAMPLE_RECORDS of the newest records, the same number from each partition."""
    each = max(1, SAMPLE_RECORDS // max(1, len(partitions)))
    places = [TopicPartition(topic, number) for number in partitions]
    earliest = client.offsets(dict.fromkeys(places, EARLIEST))
    latest = client.offsets(dict.fromkeys(places, LATEST))
    values: list[str] = []
    size_bytes = 0
    for at in places:
        end = latest[at].offset
        start = max(earliest[at].offset, end - each)
        if start >= end:
            continue
        for fetched in client.fetch(at, start, end):
            for value in decode(fetched.records, first=start, end=end).value.to_pylist():
                if value is not None and size_bytes < SAMPLE_BYTES:
                    size_bytes += len(value)
                    values.append(value.decode(errors="replace"))
    return values


def infer(spark: "SparkSession", topic: str, values: list[str]) -> "StructType":
    """SqlError when there is nothing to infer from."""
    if not values:
        raise SqlError(
            f"topic {topic} has no records to infer columns from: give --schema, or --value text for plain text"
        )
    schema = _json_schema(spark, values)
    if not schema.fields:
        raise SqlError(
            f"the newest {len(values)} values of topic {topic} are no JSON objects: give --value text, or --schema"
        )
    return schema


def _json_schema(spark: "SparkSession", values: list[str]) -> "StructType":
    # Through the JVM and not through an RDD: that would start Python workers to hand over text.
    jvm: Any = spark._jvm  # noqa: SLF001
    frame: Any = spark.createDataFrame([(value,) for value in values], "value STRING")
    texts = getattr(frame._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())  # noqa: SLF001
    reader = spark.read.option("inferTimestamp", True).option("mode", "DROPMALFORMED")
    read: Any = reader._jreader.json(texts)  # noqa: SLF001
    from pyspark.sql.types import StructType, _parse_datatype_json_string  # noqa: PLC0415

    found = _parse_datatype_json_string(read.schema().json())
    assert isinstance(found, StructType)
    return found
