"""`spark.read.format("penstock")`: the rows and options of Spark's own Kafka source, found without registration."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from tests.integration.spark.topics import Sent, Topics

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000

MIXED = [
    Sent(b"plain"),
    Sent(b"keyed", key=b"k", partition=1),
    Sent(None, key=b"tombstone"),
    Sent(b"", key=b"", partition=2),
    Sent(b"\xff\x00bytes", timestamp=NOON_MS + 1),
    Sent(b"headed", headers=(("a", b"1"), ("a", None), ("ü", b"")), partition=1),
]


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def as_sent(row: Row) -> Sent:
    headers = tuple(
        (header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()
    )
    return Sent(
        None if row.value is None else bytes(row.value),
        None if row.key is None else bytes(row.key),
        row.partition,
        round(row.timestamp.timestamp() * 1000),
        headers,
    )


@pytest.fixture(params=["true", "false"], ids=["push-down", "no push-down"])
def push_down(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(PUSH_DOWN)
    spark.conf.set(PUSH_DOWN, request.param)
    yield request.param
    spark.conf.set(PUSH_DOWN, before)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_message_comes_as_it_was_sent(spark: SparkSession, topics: Topics, codec: str) -> None:
    topic = topics.create(partitions=4)
    topics.produce(topic, MIXED, **{"compression.type": codec})
    frame = topics.read(spark, topic).option("includeHeaders", "true").load()
    rows = frame.orderBy("partition", "offset").collect()
    assert [as_sent(row) for row in rows] == sorted(MIXED, key=lambda sent: sent.partition)
    assert [(row.partition, row.offset) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
    assert {row.topic for row in rows} == {topic}
    assert {row.timestampType for row in rows} == {0}
    assert [row.headers is None for row in rows] == [True, True, True, True, False, True]


def test_times_are_instants_whatever_the_zone(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, [Sent(b"x", timestamp=NOON_MS)])
    (row,) = topics.read(spark, topic).load().selectExpr("unix_millis(timestamp) ms", "timestamp").collect()
    assert row.ms == NOON_MS
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(NOON_MS / 1000, UTC)


def test_append_time_is_told_apart(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    topics.produce(topic, [Sent(b"x", timestamp=NOON_MS)])
    (row,) = (
        topics.read(spark, topic).load().selectExpr("timestampType", "unix_millis(timestamp) ms").collect()
    )
    assert row.timestampType == 1
    assert row.ms > NOON_MS


def test_topics_and_patterns(spark: SparkSession, topics: Topics) -> None:
    a, b = topics.create("a"), topics.create("ab")
    topics.count_up(a, 0, 5)
    topics.count_up(b, 5, 5)
    assert numbers(topics.read(spark, f"{a},{b}").load()) == list(range(10))
    pattern = topics.prefix + r"\.a"
    assert numbers(topics.read(spark).option("subscribePattern", pattern).load()) == list(range(5))
    assert numbers(topics.read(spark).option("subscribePattern", pattern + ".?").load()) == list(range(10))


def test_offsets_and_assigned_partitions(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 40, partitions=2)
    assigned = topics.read(spark).option("assign", json.dumps({topic: [1]}))
    assert numbers(assigned.load()) == list(range(1, 40, 2))
    bounded = (
        topics.read(spark, topic)
        .option("startingOffsets", json.dumps({topic: {"0": 5, "1": -2}}))
        .option("endingOffsets", json.dumps({topic: {"0": -1, "1": 3}}))
    )
    assert numbers(bounded.load()) == [1, 3, 5, *range(10, 40, 2)]


def test_times_as_bounds(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    sent = [Sent(b"%d" % n, partition=n % 2, timestamp=NOON_MS + n * 1000) for n in range(20)]
    topics.produce(topic, sent)
    reader = topics.read(spark, topic)
    since, until = str(NOON_MS + 5000), str(NOON_MS + 15_000)
    assert numbers(reader.option("startingTimestamp", since).option("endingTimestamp", until).load()) == list(
        range(5, 15)
    )
    each = json.dumps({topic: {"0": NOON_MS + 18_000, "1": NOON_MS}})
    by_partition = topics.read(spark, topic).option("startingOffsetsByTimestamp", each)
    assert numbers(by_partition.load()) == [*range(1, 18, 2), 18, 19]


def test_tasks_are_as_many_as_asked_for(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 100, partitions=2)
    for name, value, tasks in (
        ("minPartitions", "7", 7),
        ("maxRecordsPerPartition", "15", 8),
        ("minPartitions", "1", 2),
    ):
        frame = topics.read(spark, topic).option(name, value).load()
        assert frame.rdd.getNumPartitions() == tasks
        assert numbers(frame) == list(range(100))


def test_an_empty_topic_is_no_rows(spark: SparkSession, topics: Topics) -> None:
    assert topics.read(spark, topics.create(partitions=3)).load().collect() == []


def test_filters_give_the_same_rows_with_and_without_push_down(
    spark: SparkSession, topics: Topics, push_down: str
) -> None:
    topic = topics.create(partitions=3)
    topics.produce(
        topic, [Sent(b"%d" % n, partition=n % 3, timestamp=NOON_MS + (n % 10) * HOUR_MS) for n in range(90)]
    )
    frame = topics.read(spark, topic).load()
    since = f"timestamp_millis({NOON_MS + 4 * HOUR_MS})"
    for condition, wanted in (
        ("partition = 1", range(1, 90, 3)),
        ("partition IN (0, 2) AND offset BETWEEN 10 AND 12", [30, 32, 33, 35, 36, 38]),
        ("offset IN (1, 3) AND partition = 0", [3, 9]),
        (f"timestamp >= {since}", [n for n in range(90) if n % 10 >= 4]),
        (f"timestamp < {since} AND partition < 1", [n for n in range(0, 90, 3) if n % 10 < 4]),
        (f"timestamp = {since}", range(4, 90, 10)),
        (f"topic = '{topic}' AND offset = 29", [87, 88, 89]),
        ("topic = 'other'", []),
        ("partition <> 0 AND length(value) = 1", [1, 2, 4, 5, 7, 8]),
    ):
        assert numbers(frame.where(condition)) == list(wanted), condition
    plan = frame.where("partition = 1 AND offset > 5")._jdf.queryExecution().executedPlan().toString()
    assert ("Filter (" in plan) == (push_down == "false")
    assert frame.where("partition = 1 AND offset > 5").rdd.getNumPartitions() == (
        1 if push_down == "true" else 3
    )


def test_a_schema_may_pick_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 3)
    rows = topics.read(spark, topic).schema("offset BIGINT, value BINARY").load().collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_a_registered_source_works_too(spark: SparkSession, topics: Topics) -> None:
    import penstock.spark

    penstock.spark.register(spark)
    topic = topics.create()
    topics.count_up(topic, 0, 3)
    assert topics.read(spark, topic).load().count() == 3


def test_sql_over_a_topic(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    topics.read(spark, topic).load().createOrReplaceTempView("numbers")
    (row,) = spark.sql("SELECT sum(CAST(CAST(value AS STRING) AS INT)) AS total FROM numbers").collect()
    assert row.total == 45
