"""What is wrong is said in one sentence, wherever in Spark it happens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.integration.spark.topics import Topics

from penstock.spark import reason
from penstock.testing import BrokerProcess


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        run()
    text = reason(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("subscibe", "t", "unknown option subscibe: did you mean subscribe?"),
        ("startingOffsets", "newest", "startingOffsets is 'newest': use earliest, latest or offsets as JSON"),
        ("assign", '{"t": [0]}', "exactly one of subscribe, subscribePattern, assign"),
        ("kafka.fetch.max.byte", "5", "did you mean fetch.max.bytes?"),
        ("includeHeaders", "maybe", "includeHeaders is 'maybe': use true or false"),
    ],
)
def test_a_wrong_option(spark: SparkSession, topics: Topics, name: str, value: str, said: str) -> None:
    reader = topics.read(spark, topics.create()).option(name, value)
    assert said in failure(lambda: reader.load().collect())


def test_an_unknown_topic(spark: SparkSession, topics: Topics) -> None:
    nowhere = topics.prefix
    said = failure(topics.read(spark, nowhere).load().collect)
    assert said.startswith(f"there is no topic {nowhere}")


def test_no_broker(spark: SparkSession) -> None:
    reader = (
        spark.read.format("penstock").option("subscribe", "t").option("kafka.default.api.timeout.ms", "200")
    )
    frame = reader.option("kafka.bootstrap.servers", "127.0.0.1:1").load()
    assert "127.0.0.1:1" in failure(frame.collect)


def test_a_schema_that_is_not_the_sources(spark: SparkSession, topics: Topics) -> None:
    reader = topics.read(spark, topics.create()).schema("value STRING")
    assert "the column value is binary, not string" in failure(lambda: reader.load().collect())


def lossy(spark: SparkSession, topics: Topics, **options: str) -> DataFrame:
    topic = topics.create()
    topics.count_up(topic, 0, 20)
    topics.delete_records(topic, 0, 8)
    reader = topics.read(spark, topic).option("startingOffsets", json.dumps({topic: {"0": 3}}))
    return reader.options(**options).load()


def test_offsets_out_of_range_fail(spark: SparkSession, topics: Topics) -> None:
    said = failure(lossy(spark, topics).collect)
    assert "has no offset 3 any more, it begins at 8" in said
    assert "failOnDataLoss=false" in said


def test_offsets_out_of_range_are_left_out_on_request(spark: SparkSession, topics: Topics) -> None:
    rows = lossy(spark, topics, failOnDataLoss="false").collect()
    assert [row.offset for row in rows] == list(range(8, 20))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_between_planning_and_reading(spark: SparkSession, topics: Topics, fails: str) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 20)
    frame = topics.read(spark, topic).option("failOnDataLoss", fails).load()
    frame.rdd.getNumPartitions()  # plans: from here on the ranges are fixed
    topics.delete_records(topic, 0, 12)
    if fails == "true":
        assert "has no offset 0 any more, it begins at 12" in failure(frame.collect)
    else:
        assert [row.offset for row in frame.collect()] == list(range(12, 20))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_made_anew_between_planning_and_reading(
    spark: SparkSession, topics: Topics, fails: str
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 20)
    frame = topics.read(spark, topic).option("failOnDataLoss", fails).load()
    frame.rdd.getNumPartitions()
    topics.delete(topic)
    topics.create(topic, exact=True)
    topics.count_up(topic, 100, 20)
    if fails == "true":
        assert "was deleted and made anew" in failure(frame.collect)
    else:
        assert frame.collect() == []


def test_a_corrupted_batch_is_named(spark: SparkSession, topics: Topics, running: BrokerProcess) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 5)
    topics.count_up(topic, 5, 1)  # a batch of its own, however the client cuts batches
    (log,) = (running.data_dir / "topics" / topic / "Partition-0").glob("*.log")
    flip_last_byte(log)
    said = failure(topics.read(spark, topic).load().collect)
    assert "offset 5" in said


def flip_last_byte(log: Path) -> None:
    """In place, as a failing disk would: the broker serves batches without opening them."""
    with log.open("r+b") as file:
        file.seek(-1, 2)
        (last,) = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last ^ 0xFF]))
