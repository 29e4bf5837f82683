"""`spark.readStream.format("penstock")`: checkpoints, limits, replays, and topics that change while it runs."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.integration.spark.batches import Batches
from tests.integration.spark.topics import Topics

from penstock.spark import reason

POLL_S = 0.05


def wait_for(condition: Callable[[], bool]) -> None:
    """The test's own timeout ends what never comes true."""
    while not condition():
        time.sleep(POLL_S)


def batches(spark: SparkSession, topics: Topics, topic: str, checkpoint: Path, **options: str) -> Batches:
    reader = topics.stream(spark, topic).options(**({"startingOffsets": "earliest"} | options))
    return Batches(reader.load(), checkpoint)


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        run()
    return reason(raised.value)


def test_a_restarted_stream_reads_each_row_once(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(partitions=3)
    stream = batches(spark, topics, topic, tmp_path)
    for first in (0, 100, 200):
        topics.count_up(topic, first, 100, partitions=3)
        stream.run()
        assert stream.values == list(range(first + 100))
    stream.run()
    assert stream.values == list(range(300))


def test_a_limit_cuts_what_is_there_into_even_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 100, partitions=2)
    stream = batches(spark, topics, topic, tmp_path, maxOffsetsPerTrigger="30")
    stream.run()
    assert stream.sizes == [30, 30, 30, 10]
    assert stream.values == list(range(100))


def test_available_now_does_not_read_what_comes_later(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 40)
    stream = batches(spark, topics, topic, tmp_path, maxOffsetsPerTrigger="10")
    stream.before_batch = lambda batch: topics.count_up(topic, 1000 + batch, 1) if batch < 3 else None
    stream.run()
    assert stream.values == list(range(40))


@pytest.mark.parametrize("batch", [0, 1])
def test_a_replayed_batch_has_the_same_rows(
    spark: SparkSession, topics: Topics, tmp_path: Path, batch: int
) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 50, partitions=2)
    stream = batches(spark, topics, topic, tmp_path, maxOffsetsPerTrigger="25")
    stream.run()
    first_time = dict(stream.seen)[batch]
    stream.rewind(batch)
    stream.seen.clear()
    topics.count_up(topic, 100, 50, partitions=2)
    stream.run()
    assert stream.seen[0] == (batch, first_time)
    assert set(stream.values) >= set(range(100, 150))


def test_latest_means_when_the_query_first_began(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Stopped before it had read anything, it still reads what came while it was down."""
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    stream = batches(spark, topics, topic, tmp_path, startingOffsets="latest")
    stream.run()
    assert stream.values == []
    topics.count_up(topic, 10, 10)
    stream.run()
    assert stream.values == list(range(10, 20))


def test_a_replayed_first_batch_does_not_take_latest_anew(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    stream = batches(spark, topics, topic, tmp_path, startingOffsets="latest")
    topics.count_up(topic, 0, 10)
    query = stream.start()
    wait_for((tmp_path / "commits" / "0").exists)
    topics.count_up(topic, 10, 10)
    wait_for(lambda: stream.values == list(range(10, 20)))
    query.stop()
    stream.rewind(0)  # and "latest" is somewhere else by now
    topics.count_up(topic, 20, 10)
    stream.seen.clear()
    stream.run()
    assert stream.values == list(range(10, 30))


def test_new_partitions_and_topics_are_picked_up(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("a")
    topics.count_up(topic, 0, 10)
    reader = topics.stream(spark).option("subscribePattern", topics.prefix + r"\..*")
    stream = Batches(reader.option("startingOffsets", "earliest").load(), tmp_path)
    query = stream.start()
    wait_for(lambda: stream.values == list(range(10)))
    topics.grow(topic, 3)
    topics.count_up(topic, 10, 30, partitions=3)
    wait_for(lambda: stream.values == list(range(40)))
    topics.count_up(topics.create("b"), 40, 5)
    wait_for(lambda: stream.values == list(range(45)))
    query.stop()


def test_a_minimum_waits_for_more(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    stream = batches(spark, topics, topic, tmp_path, minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    query = stream.start()
    wait_for(lambda: stream.values == list(range(10)))
    # Each is there before the next is sent, so a stream that did not wait would have shown some of them.
    for number in range(10, 30):
        topics.count_up(topic, number, 1)
    wait_for(lambda: stream.values == list(range(30)))
    query.stop()
    assert [size for size in stream.sizes if size] == [10, 20]


def test_progress_says_where_the_end_is(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 30)
    stream = batches(spark, topics, topic, tmp_path, maxOffsetsPerTrigger="10")
    query = stream.start(availableNow=True)
    query.awaitTermination()
    (source,) = query.recentProgress[0]["sources"]
    assert json.loads(source["endOffset"])[topic] == {"0": 10}
    assert json.loads(source["latestOffset"])[topic] == {"0": 30}
    assert stream.planned(1)[topic] == {"0": 20}


def test_a_deleted_topic_stops_the_stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    stream = batches(spark, topics, topic, tmp_path)
    query = stream.start()
    wait_for(lambda: stream.values == list(range(10)))
    topics.delete(topic)
    assert "the topic or partition was deleted after offset 10" in failure(query.awaitTermination)


def test_a_topic_made_anew_stops_the_stream_though_it_is_longer(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    stream = batches(spark, topics, topic, tmp_path)
    stream.run()
    topics.delete(topic)
    topics.create(topic, exact=True)
    topics.count_up(topic, 100, 30)
    assert "was deleted and made anew" in failure(stream.run)
    assert stream.values == list(range(10))


def test_deleted_and_made_anew_on_request(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """failOnDataLoss=false: the stream waits while the topic is gone, and reads the new one from its beginning."""
    topic, other = topics.create("a", partitions=2), topics.create("b")
    topics.count_up(topic, 0, 10, partitions=2)
    reader = topics.stream(spark, f"{topic},{other}").options(
        startingOffsets="earliest", failOnDataLoss="false"
    )
    stream = Batches(reader.load(), tmp_path)
    query = stream.start()
    wait_for(lambda: stream.values == list(range(10)))
    topics.delete(topic)
    topics.count_up(other, 50, 5)
    wait_for(lambda: stream.values == [*range(10), *range(50, 55)])
    topics.create(topic, exact=True)
    topics.count_up(topic, 100, 30)
    wait_for(lambda: stream.values == [*range(10), *range(50, 55), *range(100, 130)])
    query.stop()
    stream.run()
    assert stream.values == [*range(10), *range(50, 55), *range(100, 130)]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_gone_before_they_were_read(
    spark: SparkSession, topics: Topics, tmp_path: Path, fails: str
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    stream = batches(spark, topics, topic, tmp_path, failOnDataLoss=fails)
    stream.run()
    topics.count_up(topic, 10, 20)
    topics.delete_records(topic, 0, 15)
    if fails == "true":
        assert "has no offset 10 any more, it begins at 15" in failure(stream.run)
    else:
        stream.run()
        assert stream.values == [*range(10), *range(15, 30)]


def test_an_unknown_topic_or_option_stops_before_it_starts(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    stream = batches(spark, topics, topics.prefix, tmp_path / "a")
    assert f"there is no topic {topics.prefix}" in failure(stream.run)
    stream = batches(spark, topics, topics.create(), tmp_path / "b", endingOffsets="latest")
    assert "endingOffsets has no meaning for a stream" in failure(stream.run)
