"""Batch reads, row for row: ours, the official connector, and librdkafka as the third voice (`make clients`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.clients.spark.rows import of_frame
from tests.clients.spark.scenarios import Scenario, at, cases
from tests.clients.spark.world import NOON_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from tests.clients.spark.world import World

pytestmark = pytest.mark.clients
OFFICIAL, OURS = "kafka", "penstock"
# How long the official source looks for records that are not there: two minutes unless told.
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": "1000", "fetchOffset.numRetries": "1"}


def read(spark: SparkSession, source: str, world: World, options: dict[str, str]) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", world.bootstrap)
    return reader.options(**IMPATIENT | options).load()


@pytest.mark.ecosystem("spark")
@pytest.mark.parametrize(("kind", "scenario"), cases(stream=False), ids=str)
def test_the_same_rows(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, scenario: Scenario
) -> None:
    world = world_of(kind)
    options = scenario.options(world)
    official, ours = (read(spark, source, world, options) for source in (OFFICIAL, OURS))
    assert ours.schema.simpleString() == official.schema.simpleString()
    wanted = scenario.wanted(world, headers=options.get("includeHeaders") == "true")
    assert of_frame(official) == wanted
    assert of_frame(ours) == wanted


@pytest.mark.parametrize("kind", ["penstock", "kafka"])
@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), ("timestamp", "topic")], ids=str)
def test_the_same_after_a_selection(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, columns: tuple[str, ...]
) -> None:
    world = world_of(kind)
    condition = f"partition = 1 AND offset > 10 AND timestamp < timestamp_millis({NOON_MS + 150_000})"
    found = [
        read(spark, source, world, {"subscribe": world.mixed})
        .where(condition)
        .orderBy("offset")
        .select(*columns)
        .collect()
        for source in (OFFICIAL, OURS)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 39


WRONG = {
    "offsets that are gone": lambda world: {
        "subscribe": world.trimmed,
        "startingOffsets": at(world.trimmed, p0=3, p1=20),
    },
    "no offset at that time": lambda world: {
        "subscribe": world.mixed,
        "startingTimestamp": str(NOON_MS + 10**9),
    },
    "a partition without an offset": lambda world: {
        "subscribe": world.mixed,
        "startingOffsets": at(world.mixed, p0=3),
    },
    "offsets beyond the end": lambda world: {
        "subscribe": world.empty,
        "endingOffsets": at(world.empty, p0=7, p1=0),
    },
    "an unknown topic": lambda world: {"subscribe": world.topics.prefix + "nowhere"},
    "to begin at the latest": lambda world: {"subscribe": world.mixed, "startingOffsets": "latest"},
    "to end at the earliest": lambda world: {"subscribe": world.mixed, "endingOffsets": "earliest"},
    "two subscriptions": lambda world: {"subscribe": world.mixed, "subscribePattern": "x"},
    "no subscription": lambda _: {},
    "a task size of none": lambda world: {"subscribe": world.mixed, "minPartitions": "0"},
}


@pytest.mark.parametrize("kind", ["penstock", "kafka"])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_is_refused(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, wrong: str
) -> None:
    world = world_of(kind)
    for source in (OFFICIAL, OURS):
        # Some of the official source's reach Python unwrapped.
        with pytest.raises((PySparkException, Py4JError)):
            read(spark, source, world, WRONG[wrong](world)).collect()
