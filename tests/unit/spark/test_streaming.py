"""The stream reader between Spark's questions and the cluster's answers, without a Spark."""

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.unit.spark.fake_cluster import FakeCluster, FakeLog

from penstock.client.raw import Retirement, TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.options import read_options
from penstock.spark.planning import Range
from penstock.spark.schema import source_schema
from penstock.spark.streaming import StreamReader

EVERYTHING = ReadAllAvailable()
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create("t", FakeLog(0, 10))
    return made


def reader(cluster: FakeCluster, **given: str) -> StreamReader:
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOffsets": "earliest"} | given
    made = StreamReader(read_options(options, streaming=True), source_schema(headers=False))
    made._client = cluster  # type: ignore[assignment]
    return made


def ranges(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
    return [partition.value for partition in stream.partitions(start, end)]


def test_batches_follow_each_other(cluster: FakeCluster) -> None:
    stream = reader(cluster)
    start = stream.initialOffset()
    first = stream.latestOffset(start, EVERYTHING)
    assert ranges(stream, start, first) == [Range(T0, 0, 10)]
    assert stream.latestOffset(first, EVERYTHING) == first, "nothing new"
    cluster.logs[T0].end = 15
    second = stream.latestOffset(first, EVERYTHING)
    assert ranges(stream, first, second) == [Range(T0, 10, 15)]
    assert stream.reportLatestOffset() == {"t": {"0": 15}}


def test_the_first_batch_pins_the_beginning_even_when_it_is_empty(cluster: FakeCluster) -> None:
    stream = reader(cluster, startingOffsets="latest")
    start = stream.initialOffset()
    first = stream.latestOffset(start, EVERYTHING)
    assert first != start, "Spark writes no offsets for a batch that does not move"
    assert ranges(stream, start, first) == []
    cluster.logs[T0].end = 12
    replayed_with = stream.initialOffset()
    assert ranges(stream, replayed_with, first) == []


def test_a_batch_for_another_source_of_the_query_reads_nothing_again(cluster: FakeCluster) -> None:
    stream = reader(cluster)
    first = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    assert ranges(stream, first, first) == []


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, EVERYTHING),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "6"}, ReadMaxRows(6)),
    ],
)
def test_what_spark_is_told_of_limits(cluster: FakeCluster, given: dict[str, str], limit: object) -> None:
    assert reader(cluster, **given).getDefaultReadLimit() == limit


def test_a_limit_is_kept_and_all_means_all(cluster: FakeCluster) -> None:
    stream = reader(cluster, maxOffsetsPerTrigger="4")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(4))["t"] == {"0": 4}
    assert stream.latestOffset(start, EVERYTHING)["t"] == {"0": 10}


def test_a_minimum_holds_back_until_enough_or_long_enough(cluster: FakeCluster) -> None:
    stream = reader(cluster, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    first = stream.latestOffset(stream.initialOffset(), limit)
    cluster.logs[T0].end = 14
    assert stream.latestOffset(first, limit) == first
    assert stream._last_trigger_s is not None
    stream._last_trigger_s -= 3601
    assert stream.latestOffset(first, limit)["t"] == {"0": 14}
    cluster.logs[T0].end = 19
    assert stream.latestOffset(first, limit)["t"] == {"0": 19}


def test_available_now_ends_though_the_topic_grows(cluster: FakeCluster) -> None:
    stream = reader(cluster, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    limit = stream.getDefaultReadLimit()
    stream.prepareForTriggerAvailableNow()
    at, ends = stream.initialOffset(), []
    while True:
        cluster.logs[T0].end += 3
        cluster.logs[T1] = FakeLog(0, 4)
        following = stream.latestOffset(at, limit)
        if following == at:
            break
        at = following
        ends.append(at["t"])
    assert ends == [{"0": 6}, {"0": 10}], "neither what came later nor the partition that did"


def test_available_now_of_a_topic_that_is_gone(cluster: FakeCluster) -> None:
    stream = reader(cluster, failOnDataLoss="false")
    first = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    cluster.delete("t")
    again = reader(cluster, failOnDataLoss="false")
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(first, EVERYTHING) == first


def test_tasks_get_no_connection(cluster: FakeCluster) -> None:
    stream = reader(cluster)
    stream.initialOffset()
    travelled = pickle.loads(pickle.dumps(stream))
    assert travelled._client is None


# ── partitions that are retired, removed and grown again ──


@pytest.fixture
def two(cluster: FakeCluster) -> FakeCluster:
    cluster.create("t", FakeLog(0, 10), FakeLog(0, 10))
    return cluster


def read_up(stream: StreamReader) -> dict[str, Any]:
    """Everything there is, and one more look as a running stream takes it."""
    start = stream.initialOffset()
    first = stream.latestOffset(start, EVERYTHING)
    assert ranges(stream, start, first) == [Range(T0, 0, 10), Range(T1, 0, 10)]
    assert stream.latestOffset(first, EVERYTHING) == first
    return first


def test_a_stream_that_has_read_everything_goes_on_without_a_retired_partition(two: FakeCluster) -> None:
    stream = reader(two)
    at = read_up(stream)
    two.retire(T1)
    without = stream.latestOffset(at, EVERYTHING)
    assert ranges(stream, at, without) == []
    two.logs[T0].end = 12
    assert ranges(stream, without, stream.latestOffset(without, EVERYTHING)) == [Range(T0, 10, 12)]
    restarted = reader(two)
    following = restarted.latestOffset(without, EVERYTHING)
    assert ranges(restarted, without, following) == [Range(T0, 10, 12)]


def test_what_a_retired_partition_had_unread_is_a_loss(two: FakeCluster) -> None:
    stream = reader(two, maxOffsetsPerTrigger="4")
    behind = stream.latestOffset(stream.initialOffset(), ReadMaxRows(4))
    two.retire(T1)
    with pytest.raises(DataLossError, match="t-1 was retired, and its records from offset 2 to 10 are gone"):
        stream.latestOffset(behind, EVERYTHING)


def test_what_was_written_after_the_last_look_is_a_loss(two: FakeCluster) -> None:
    stream = reader(two)
    at = read_up(stream)
    two.logs[T1].end = 17
    two.retire(T1)
    with pytest.raises(DataLossError, match="t-1 was retired, and its records from offset 10 to 17 are gone"):
        stream.latestOffset(at, EVERYTHING)
    told = reader(two, failOnDataLoss="false").latestOffset(at, EVERYTHING)
    assert reader(two).latestOffset(told, EVERYTHING) == told, "it was said"
    two.removed[T1] = Retirement(26, 26)  # grown again, written to and retired once more
    with pytest.raises(DataLossError, match="from offset 10 to 26"):
        reader(two).latestOffset(told, EVERYTHING)


def test_a_stream_that_was_away_knows_that_it_has_missed_nothing(two: FakeCluster) -> None:
    at = read_up(reader(two))
    two.retire(T1)
    without = reader(two).latestOffset(at, EVERYTHING)
    assert without["@retired"] == {"t": {"1": 10}}
    old = without | {"@retired": {"t": [1]}}  # as it was once written
    assert reader(two).latestOffset(old, EVERYTHING) == without


def test_where_no_broker_knows_the_end_it_is_said_once(two: FakeCluster) -> None:
    at = read_up(reader(two))
    del two.logs[T1]
    with pytest.raises(DataLossError, match="nobody knows any more where it ended"):
        reader(two).latestOffset(at, EVERYTHING)
    told = reader(two, failOnDataLoss="false").latestOffset(at, EVERYTHING)
    assert reader(two).latestOffset(told, EVERYTHING) == told


def test_a_broker_that_shows_it_still_is_asked_again(two: FakeCluster) -> None:
    stream = reader(two)
    at = read_up(stream)
    del two.logs[T1]
    two.removed[T1] = Retirement(None, 0)
    assert stream.latestOffset(at, EVERYTHING) == at
    two.removed[T1] = Retirement(12, 12)
    with pytest.raises(DataLossError, match="from offset 10 to 12"):
        stream.latestOffset(at, EVERYTHING)


def test_one_that_came_while_it_was_gone_reads_it_from_its_first_offset(two: FakeCluster) -> None:
    two.retire(T1)
    stream = reader(two)
    start = stream.initialOffset()
    at = stream.latestOffset(start, EVERYTHING)
    two.grow_again(T1, limit=10, start=14, end=20)
    following = stream.latestOffset(at, EVERYTHING)
    assert ranges(stream, at, following) == [Range(T1, 14, 20)]
    two.logs[T1].start = 16
    with pytest.raises(DataLossError, match="begins at offset 16, not 14"):
        stream.partitions(at, following)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("looked", [False, True])
def test_a_partition_grown_again_is_read_from_its_first_offset(
    two: FakeCluster, restarted: bool, looked: bool
) -> None:
    stream = reader(two)
    at = read_up(stream)
    if looked:
        two.retire(T1)
        at = stream.latestOffset(at, EVERYTHING)
    # Readers stopped at 10; what came to the old one until 14 is in other partitions.
    two.grow_again(T1, limit=10, start=14, end=14)
    stream = reader(two) if restarted else stream
    empty = stream.latestOffset(at, EVERYTHING)
    assert ranges(stream, at, empty) == []
    two.logs[T1].end = 20
    following = stream.latestOffset(empty, EVERYTHING)
    assert ranges(stream, empty, following) == [Range(T1, 14, 20)]
    assert ranges(stream, at, following) == [Range(T1, 14, 20)], "all at once"


def test_what_retention_took_before_it_was_retired_is_a_loss_still(two: FakeCluster) -> None:
    stream = reader(two, maxOffsetsPerTrigger="4")
    behind = stream.latestOffset(stream.initialOffset(), ReadMaxRows(4))
    two.grow_again(T1, limit=10, start=14, end=20)
    following = stream.latestOffset(behind, EVERYTHING)
    with pytest.raises(DataLossError, match="t-1 has no offset 2 any more, it begins at 14"):
        stream.partitions(behind, following)


def test_what_one_leader_has_deleted_and_the_next_one_has_is_not_left_out_in_silence(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log begins was asked of the one, and whether it serves the reader of the other."""
    stream = reader(cluster)
    first = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    cluster.logs = {T0: FakeLog(13, 20)}
    second = stream.latestOffset(first, EVERYTHING)
    monkeypatch.setattr(cluster, "serves", lambda *_: True)
    with pytest.raises(DataLossError, match="has no offset 10 any more, it begins at 13"):
        stream.partitions(first, second)


def test_one_that_was_replaced_does_not_make_a_stream_go_back(cluster: FakeCluster) -> None:
    """It answers as if all was lost that its successor wrote."""
    stream = reader(cluster)
    first = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    cluster.behind = {T0: FakeLog(0, 15)}
    cluster.logs = {T0: FakeLog(0, 7)}
    restarted = reader(cluster)
    second = restarted.latestOffset(first, EVERYTHING)
    assert ranges(restarted, first, second) == [Range(T0, 10, 15)]
    # A log that lost its end in truth.
    cluster.logs = {T0: FakeLog(0, 7)}
    with pytest.raises(DataLossError, match="went back from offset 15 to 7"):
        restarted.latestOffset(second, EVERYTHING)
