"""Streams, batch by batch: ours, the official connector, and librdkafka as the third voice (`make clients`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.clients.spark.rows import Seen, of_frame
from tests.clients.spark.scenarios import Scenario, cases
from tests.integration.spark.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.clients.spark.world import World

pytestmark = pytest.mark.clients
OFFICIAL, OURS = "kafka", "penstock"
# How long the official source looks for records that are not there: two minutes unless told.
DEFAULTS = {
    "kafkaConsumer.pollTimeoutMs": "1000",
    "fetchOffset.numRetries": "1",
    "startingOffsets": "earliest",
}


class Stream:
    """A query that a test runs again and again from one checkpoint; `batches` has the rows of each batch."""

    def __init__(
        self, spark: SparkSession, source: str, bootstrap: str, options: dict[str, str], folder: Path
    ) -> None:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        self._frame = reader.options(**DEFAULTS | options).load()
        self._checkpoint = str(folder / source)
        self.batches: list[list[Seen]] = []

    def run(self) -> None:
        """All there is now."""
        writer = self._frame.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", self._checkpoint
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def _take(self, frame: DataFrame, _: int) -> None:
        self.batches.append(of_frame(frame))

    @property
    def rows(self) -> list[Seen]:
        return sorted((seen for batch in self.batches for seen in batch), key=lambda seen: seen[:3])

    @property
    def with_rows(self) -> list[list[Seen]]:
        """Batches that have any: ours begins with an empty one where the official source runs none."""
        return [batch for batch in self.batches if batch]


@pytest.mark.parametrize(("kind", "scenario"), cases(stream=True), ids=str)
def test_the_same_rows_in_the_same_batches(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, scenario: Scenario, tmp_path: Path
) -> None:
    world = world_of(kind)
    options = scenario.options(world)
    official, ours = (
        Stream(spark, source, world.bootstrap, options, tmp_path) for source in (OFFICIAL, OURS)
    )
    wanted = scenario.wanted(world, headers=options.get("includeHeaders") == "true")
    official.run()
    assert official.rows == wanted
    ours.run()
    assert ours.rows == wanted
    assert ours.with_rows == official.with_rows


@pytest.mark.parametrize("kind", ["penstock", "kafka"])
def test_restarted_with_more_records_partitions_and_topics(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, tmp_path: Path
) -> None:
    world = world_of(kind)
    topics = Topics(world.bootstrap, prefix="grows")
    options = {"subscribePattern": topics.prefix + r"\..*", "maxOffsetsPerTrigger": "25"}
    first = topics.create("a", partitions=2)
    streams = [Stream(spark, source, world.bootstrap, options, tmp_path) for source in (OFFICIAL, OURS)]

    def both() -> list[Seen]:
        for stream in streams:
            stream.run()
        assert streams[0].with_rows == streams[1].with_rows
        return streams[1].rows

    topics.count_up(first, 0, 60, partitions=2)
    assert both() == world.there(first)
    assert both() == world.there(first)
    topics.grow(first, 4)
    topics.count_up(first, 60, 60, partitions=4)
    assert both() == world.there(first)
    second = topics.create("b")
    topics.count_up(second, 0, 10)
    assert both() == world.there(first, second)


@pytest.mark.parametrize("kind", ["penstock", "kafka"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_gone_between_two_runs(
    spark: SparkSession, world_of: Callable[[str], World], kind: str, fails: str, tmp_path: Path
) -> None:
    world = world_of(kind)
    topics = Topics(world.bootstrap, prefix="gone")
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    options = {"subscribe": topic, "failOnDataLoss": fails}
    streams = [Stream(spark, source, world.bootstrap, options, tmp_path) for source in (OFFICIAL, OURS)]
    for stream in streams:
        stream.run()
    topics.count_up(topic, 10, 20)
    topics.delete_records(topic, 0, 15)
    for stream in streams:
        if fails == "true":
            with pytest.raises((PySparkException, Py4JError)):
                stream.run()
        else:
            stream.run()
    wanted = [*range(10), *(range(15, 30) if fails == "false" else ())]
    for stream in streams:
        assert [seen.offset for seen in stream.rows] == wanted
