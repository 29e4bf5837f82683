"""The sink: what a DataFrame has in it is what an ordinary consumer sees."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from tests.integration.spark.topics import Sent, Topics

from penstock.records.partitioner import partition_for
from penstock.spark import reason

NOON_MS = 1_700_000_000_000
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)


def writer(topics: Topics, frame: DataFrame, topic: str | None = None) -> DataFrameWriter:
    made = frame.write.format("penstock").mode("append").option("kafka.bootstrap.servers", topics.bootstrap)
    return made if topic is None else made.option("topic", topic)


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        run()
    return reason(raised.value)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_arrives(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.create(partitions=3)
    header = [("h", b"1"), ("n", None)]
    frame = spark.createDataFrame(
        [
            (topic, b"k", b"v", header, 2, NOON),
            (topic, None, b"", None, 1, NOON),
            (topic, b"", None, [], 0, NOON),
        ],
        "topic STRING, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
        "partition INT, timestamp TIMESTAMP",
    )
    writer(topics, frame).option("kafka.compression.type", codec).save()
    assert topics.consume(topic, 3) == [
        Sent(None, b"", 0, NOON_MS),
        Sent(b"", None, 1, NOON_MS),
        Sent(b"v", b"k", 2, NOON_MS, (("h", b"1"), ("n", None))),
    ]


def test_keys_go_where_every_kafka_client_sends_them(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=5)
    frame = spark.range(500).selectExpr("concat('key-', id) AS key", "CAST(id AS STRING) AS value")
    writer(topics, frame, topic).save()
    found = topics.consume(topic, 500)
    assert all(sent.partition == partition_for(sent.key, 5) for sent in found if sent.key is not None)
    assert sorted(int(sent.value or b"") for sent in found) == list(range(500))


def test_rows_without_a_key_are_spread(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=4)
    writer(topics, spark.range(20_000).selectExpr("CAST(id AS STRING) AS value"), topic).save()
    found = topics.consume(topic, 20_000)
    assert sorted(int(sent.value or b"") for sent in found) == list(range(20_000))
    counts = [sum(sent.partition == number for sent in found) for number in range(4)]
    assert min(counts) >= 4_000, counts


def test_the_topic_column_names_several(spark: SparkSession, topics: Topics) -> None:
    a, b = topics.create("a"), topics.create("b")
    frame = spark.createDataFrame([(a, "1"), (b, "2"), (a, "3")], "topic STRING, value STRING").coalesce(1)
    writer(topics, frame).save()
    assert [sent.value for sent in topics.consume(a, 2)] == [b"1", b"3"]
    assert [sent.value for sent in topics.consume(b, 1)] == [b"2"]
    writer(topics, frame, b).save()
    assert [sent.value for sent in topics.consume(b, 4)] == [b"2", b"1", b"2", b"3"]


def test_a_topic_copied_to_another_is_the_same(spark: SparkSession, topics: Topics) -> None:
    source, target = topics.create("a", partitions=3), topics.create("b", partitions=3)
    topics.produce(
        source,
        [
            Sent(
                b"%d" % n,
                b"k%d" % n if n % 2 else None,
                n % 3,
                NOON_MS + n,
                (("n", b"%d" % n),) if n % 5 else (),
            )
            for n in range(1000)
        ],
    )
    frame = topics.read(spark, source).option("includeHeaders", "true").load()
    writer(topics, frame.coalesce(1), target).save()
    assert topics.consume(target, 1000) == topics.consume(source, 1000)


def test_a_stream_from_topic_to_topic(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create("a", partitions=2), topics.create("b", partitions=2)
    for first in (0, 50):
        topics.count_up(source, first, 50, partitions=2)
        frame = topics.stream(spark, source).option("startingOffsets", "earliest").load()
        query = (
            frame.selectExpr("key", "value")
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert sorted(int(sent.value or b"") for sent in topics.consume(target, 100)) == list(range(100))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("1 AS value", {}, "the column value is int, but must be binary or string: cast it"),
        ("'k' AS key", {}, "there is no column value"),
        ("'v' AS value, 'x' AS headers", {}, "the column headers is string"),
        ("'v' AS value", {"topik": "t"}, "unknown option topik: did you mean topic?"),
        ("'v' AS value, 9 AS partition", {}, "has no partition 9"),
        ("'v' AS value", {"kafka.acks": "many"}, "acks=many"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession, topics: Topics, columns: str, options: dict[str, str], said: str
) -> None:
    frame = spark.sql(f"SELECT {columns}")
    assert said in failure(writer(topics, frame, topics.create()).options(**options).save)


def test_rows_need_a_topic_that_exists(spark: SparkSession, topics: Topics) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    assert "Set the option topic, or have a column topic" in failure(writer(topics, frame).save)
    assert f"there is no topic {topics.prefix}" in failure(writer(topics, frame, topics.prefix).save)
    without = spark.sql("SELECT 'v' AS value, CAST(NULL AS STRING) AS topic")
    assert "the column topic is null in a row" in failure(writer(topics, without).save)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, topics: Topics) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    assert "can only be appended to" in failure(writer(topics, frame, topics.create()).mode("overwrite").save)
