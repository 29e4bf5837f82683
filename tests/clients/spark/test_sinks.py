"""Sinks: what ours wrote and what the official connector wrote reads back the same (`make clients`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.clients.spark.world import CODECS
from tests.integration.spark.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.clients.spark.world import World

pytestmark = pytest.mark.clients
OFFICIAL, OURS = "kafka", "penstock"
PARTITIONS = 3
ROWS = 200
HEADERS = "array<struct<key:string,value:binary>>"
KEYED = (
    "CASE id % 5 WHEN 0 THEN binary('') WHEN 1 THEN NULL ELSE binary('key' || id % 17) END AS key",
    "CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN binary('') ELSE binary(repeat('v' || id, int(id))) END AS value",
    f"""CASE id % 4
        WHEN 0 THEN NULL
        WHEN 1 THEN array(struct('a' AS key, binary('1') AS value), struct('a' AS key, NULL AS value))
        ELSE CAST(array() AS {HEADERS})
    END AS headers""",
    f"CASE WHEN id % 5 = 1 OR id % 6 = 0 THEN int(id % {PARTITIONS}) END AS partition",
)


def rows(spark: SparkSession, *columns: str) -> DataFrame:
    """One task, so that the order in each partition is the order of the rows."""
    return spark.range(0, ROWS, 1, 1).selectExpr(*columns)


def write(frame: DataFrame, sink: str, world: World, **options: str) -> None:
    # The mode is the one thing to say that the official sink does without: Spark asks it of every Python sink.
    writer = frame.write.format(sink).mode("append")
    writer.options(**{"kafka.bootstrap.servers": world.bootstrap} | options).save()


Written = tuple[int, int, bytes | None, bytes | None, object]


def read_back(world: World, topic: str) -> list[Written]:
    """By librdkafka; without the topic and the time, which are not the same for both."""
    return [(seen.partition, seen.offset, seen.key, seen.value, seen.headers) for seen in world.there(topic)]


@pytest.fixture(params=["penstock", "kafka"])
def world(world_of: Callable[[str], World], request: pytest.FixtureRequest) -> World:
    return world_of(request.param)


@pytest.fixture
def topics(world: World) -> Topics:
    return Topics(world.bootstrap, prefix="sink")


@pytest.mark.ecosystem("spark")
@pytest.mark.parametrize("codec", CODECS)
def test_the_same_records(spark: SparkSession, world: World, topics: Topics, codec: str) -> None:
    frame = rows(spark, *KEYED)
    found = []
    for sink in (OFFICIAL, OURS):
        topic = topics.create(sink, partitions=PARTITIONS)
        write(frame, sink, world, topic=topic, includeHeaders="true", **{"kafka.compression.type": codec})
        found.append(read_back(world, topic))
    assert found[0] == found[1]
    assert len(found[0]) == ROWS
    # Nothing of what makes the rows different was lost on the way in.
    assert {row[0] for row in found[0]} == set(range(PARTITIONS))
    assert any(row[2] is None for row in found[0])
    assert any(row[3] is None for row in found[0])
    assert sum(row[4] is not None for row in found[0]) == ROWS // 4


def test_the_same_topics_by_column(spark: SparkSession, world: World, topics: Topics) -> None:
    found = []
    for sink in (OFFICIAL, OURS):
        names = [topics.create(f"{sink}.{number}", partitions=PARTITIONS) for number in range(2)]
        frame = rows(
            spark,
            "string(id) AS key",
            "string(id) AS value",
            f"'{topics.prefix}.{sink}.' || (id % 2) AS topic",
        )
        write(frame, sink, world)
        found.append([read_back(world, name) for name in names])
    assert found[0] == found[1]
    assert [len(records) for records in found[0]] == [ROWS // 2, ROWS // 2]


def test_the_same_records_without_keys(spark: SparkSession, world: World, topics: Topics) -> None:
    """Where they go is each sink's own affair; that all of them go somewhere is not."""
    found = []
    for sink in (OFFICIAL, OURS):
        topic = topics.create(sink, partitions=PARTITIONS)
        write(rows(spark, "'v' || id AS value"), sink, world, topic=topic)
        found.append(sorted(row[3] or b"" for row in read_back(world, topic)))
    assert found[0] == found[1] == sorted(b"v%d" % number for number in range(ROWS))


@pytest.mark.ecosystem("spark")
@pytest.mark.parametrize("source", [OFFICIAL, OURS])
def test_the_same_streams(
    spark: SparkSession, world: World, topics: Topics, source: str, tmp_path: Path
) -> None:
    """From topic to topic, each sink behind each source, over a restart."""
    found = []
    for sink in (OFFICIAL, OURS):
        origin, target = (topics.create(f"{name}.{sink}", partitions=PARTITIONS) for name in ("from", "to"))
        write(rows(spark, *KEYED), OURS, world, topic=origin)
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", world.bootstrap)
        reader = reader.options(subscribe=origin, startingOffsets="earliest", includeHeaders="true")
        frame = reader.load().select("key", "value", "headers", "partition")
        writer = frame.writeStream.format(sink).option("kafka.bootstrap.servers", world.bootstrap)
        writer = writer.options(topic=target, includeHeaders="true", checkpointLocation=str(tmp_path / sink))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert read_back(world, target) == read_back(world, origin)
        write(rows(spark, *KEYED), OURS, world, topic=origin)
        writer.trigger(availableNow=True).start().awaitTermination()
        assert read_back(world, target) == read_back(world, origin)
        found.append(read_back(world, target))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * ROWS


WRONG = {
    "no value": ["string(id) AS key"],
    "a null topic": ["'x' AS value", "CAST(NULL AS string) AS topic"],
    "a number as value": ["id AS value"],
    "a number as key": ["id AS key", "'x' AS value"],
    "a partition that is not there": ["'x' AS value", "99 AS partition"],
    "headers of another type": ["'x' AS value", "array('a') AS headers"],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_is_refused(spark: SparkSession, world: World, topics: Topics, wrong: str) -> None:
    options = {"kafka.max.block.ms": "3000"}  # how long the official sink waits for a partition to appear
    for sink in (OFFICIAL, OURS):
        topic = topics.create(sink)
        if wrong != "a null topic":
            options["topic"] = topic
        with pytest.raises((PySparkException, Py4JError)):
            write(rows(spark, *WRONG[wrong]), sink, world, includeHeaders="true", **options)
        assert read_back(world, topic) == []
