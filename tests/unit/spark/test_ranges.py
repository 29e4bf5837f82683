"""What a batch reads, when topics grow, shrink, go and come back."""

import re

import pytest
from tests.unit.spark.fake_cluster import FakeCluster, FakeLog

from penstock.client.raw import EARLIEST, TopicPartition, UnknownTopicError
from penstock.spark.cluster import Found, edges, find
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.loss import LossPolicy
from penstock.spark.offsets import Offsets, StreamOffset
from penstock.spark.options import Subscription, read_options
from penstock.spark.planning import Range
from penstock.spark.ranges import advance, batch_ranges, fresh, stream_ranges

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STRICT, LENIENT = LossPolicy(fail=True), LossPolicy(fail=False)
TOPIC_T = Subscription(topics=("t",))


def batch(cluster: FakeCluster, **given: str) -> list[Range]:
    options = {"kafka.bootstrap.servers": "b:1"} | ({} if "assign" in given else {"subscribe": "t"}) | given
    return batch_ranges(cluster, read_options(options, streaming=False))[0]


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create("t", FakeLog(10, 20, stable=15, times=tuple(range(100, 110))), FakeLog(0, 5, times=(1,) * 5))
    return made


def test_a_batch_reads_everything_by_default(cluster: FakeCluster) -> None:
    assert batch(cluster) == [Range(T0, 10, 20), Range(T1, 0, 5)]


def test_committed_readers_stop_at_the_stable_end(cluster: FakeCluster) -> None:
    assert batch(cluster, **{"isolation.level": "read_committed"}) == [Range(T0, 10, 15), Range(T1, 0, 5)]


def test_offsets_as_given(cluster: FakeCluster) -> None:
    start, end = '{"t": {"0": 12, "1": -2}}', '{"t": {"0": -1, "1": 3}}'
    assert batch(cluster, startingOffsets=start, endingOffsets=end) == [Range(T0, 12, 20), Range(T1, 0, 3)]


def test_assigned_partitions_only(cluster: FakeCluster) -> None:
    assert batch(cluster, assign='{"t": [1]}') == [Range(T1, 0, 5)]
    with pytest.raises(OptionError, match="assign names t-7"):
        batch(cluster, assign='{"t": [7]}')


def test_times(cluster: FakeCluster) -> None:
    found = batch(cluster, startingTimestamp="1", endingTimestamp="105")
    assert found == [Range(T0, 10, 15), Range(T1, 0, 5)]
    with pytest.raises(OptionError, match="t-1 has no record at or after that time"):
        batch(cluster, startingTimestamp="105")
    assert batch(cluster, startingTimestamp="105", startingOffsetsByTimestampStrategy="latest") == [
        Range(T0, 15, 20)
    ]
    each = '{"t": {"0": 108, "1": 0}}'
    assert batch(cluster, startingOffsetsByTimestamp=each) == [Range(T0, 18, 20), Range(T1, 0, 5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"t": {"0": 12}}', "t-1 is missing"),
        ('{"t": {"0": 12, "1": 0, "2": 0}}', "names t-2, which is not among"),
    ],
)
def test_offsets_must_name_every_partition(cluster: FakeCluster, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        batch(cluster, startingOffsets=text)


def test_a_start_after_the_end_is_a_mistake(cluster: FakeCluster) -> None:
    with pytest.raises(OptionError, match="is after endingOffsets"):
        batch(cluster, startingOffsets='{"t": {"0": 15, "1": 0}}', endingOffsets='{"t": {"0": 12, "1": 0}}')


def test_what_retention_took_is_a_loss_or_left_out(cluster: FakeCluster) -> None:
    start = '{"t": {"0": 4, "1": 0}}'
    with pytest.raises(DataLossError, match="t-0 has no offset 4 any more, it begins at 10"):
        batch(cluster, startingOffsets=start)
    assert batch(cluster, startingOffsets=start, failOnDataLoss="false") == [
        Range(T0, 10, 20),
        Range(T1, 0, 5),
    ]


def test_an_end_that_is_not_there_yet(cluster: FakeCluster) -> None:
    end = '{"t": {"0": 99, "1": 5}}'
    with pytest.raises(DataLossError, match="it ends at 20"):
        batch(cluster, endingOffsets=end)
    assert batch(cluster, endingOffsets=end, failOnDataLoss="false") == [Range(T0, 10, 20), Range(T1, 0, 5)]


def test_a_topic_that_is_not_there(cluster: FakeCluster) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic nowhere"):
        batch(cluster, subscribe="t,nowhere")


def test_a_pattern_matches_whole_names_and_no_internal_topics(cluster: FakeCluster) -> None:
    cluster.create("tt", FakeLog())
    cluster.create("__t", FakeLog())
    assert find(cluster, Subscription(pattern="t")).topics == ("t",)
    assert find(cluster, Subscription(pattern=".*t")).topics == ("t", "tt")


# ── streams ──


def plan(
    cluster: FakeCluster, start: StreamOffset, end: StreamOffset, loss: LossPolicy = STRICT
) -> list[Range]:
    now = find(cluster, TOPIC_T, missing_ok=True)
    there = [at for at in now.partitions if at in end.at]
    return stream_ranges(start, end, now, edges(cluster, there, EARLIEST), loss)


def step(
    cluster: FakeCluster, start: StreamOffset, loss: LossPolicy = STRICT
) -> tuple[Offsets, Offsets, StreamOffset]:
    now = find(cluster, TOPIC_T, missing_ok=True)
    earliest = edges(cluster, fresh(start, now), EARLIEST)
    begins, ends, ids = advance(start, now, earliest, edges(cluster, now.partitions, -1), loss)
    return begins, ends, StreamOffset(ends, ids)


def at_ends(cluster: FakeCluster, offsets: Offsets) -> StreamOffset:
    return StreamOffset(offsets, {topic: str(number) for topic, number in cluster.ids.items()})


def test_a_stream_goes_on_where_it_was(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T0: 12, T1: 5})
    _, ends, end = step(cluster, start)
    assert ends == {T0: 20, T1: 5}
    assert plan(cluster, start, end) == [Range(T0, 12, 20)]


def test_a_new_partition_is_read_from_its_beginning(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T0: 20})
    begins, _, end = step(cluster, start)
    assert begins[T1] == 0
    assert plan(cluster, start, end) == [Range(T1, 0, 5)]


def test_a_new_partition_that_lost_its_beginning(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T1: 5})
    _, _, end = step(cluster, start)
    with pytest.raises(DataLossError, match="t-0 is new and begins at offset 10, not 0"):
        plan(cluster, start, end)
    assert plan(cluster, start, end, LENIENT) == [Range(T0, 10, 20)]


def test_retention_before_the_batch_was_read(cluster: FakeCluster) -> None:
    start, end = at_ends(cluster, {T0: 4, T1: 5}), at_ends(cluster, {T0: 20, T1: 5})
    with pytest.raises(DataLossError, match="t-0 has no offset 4 any more"):
        plan(cluster, start, end)
    assert plan(cluster, start, end, LENIENT) == [Range(T0, 10, 20)]


def test_a_deleted_topic_is_a_loss_or_waits_where_it_was(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T0: 20, T1: 5})
    cluster.delete("t")
    with pytest.raises(DataLossError, match="t-0 is gone"):
        step(cluster, start)
    _, ends, end = step(cluster, start, LENIENT)
    assert (ends, end.ids) == (start.at, start.ids)
    assert plan(cluster, start, end) == []


def test_a_topic_deleted_before_its_batch_was_read(cluster: FakeCluster) -> None:
    start, end = at_ends(cluster, {T0: 10, T1: 5}), at_ends(cluster, {T0: 20, T1: 5})
    cluster.delete("t")
    with pytest.raises(DataLossError, match="t-0 was deleted before offsets up to 20 were read"):
        plan(cluster, start, end)
    assert plan(cluster, start, end, LENIENT) == []


def test_a_topic_made_anew_is_another_one_even_with_as_many_records(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T0: 20, T1: 5})
    cluster.create("t", FakeLog(0, 30))
    with pytest.raises(DataLossError, match="t was deleted and made anew"):
        step(cluster, start)
    _, ends, end = step(cluster, start, LENIENT)
    assert ends == {T0: 30}, "the second partition belongs to the old topic"
    assert plan(cluster, start, end) == [Range(T0, 0, 30)]


def test_a_topic_made_anew_before_its_batch_was_read(cluster: FakeCluster) -> None:
    start, end = at_ends(cluster, {T0: 10, T1: 5}), at_ends(cluster, {T0: 20, T1: 5})
    cluster.create("t", FakeLog(0, 30), FakeLog())
    with pytest.raises(DataLossError, match=re.escape("made anew before t-0 was read up to offset 20")):
        plan(cluster, start, end)
    assert plan(cluster, start, end, LENIENT) == []
    assert step(cluster, end, LENIENT)[0] == {T0: 0, T1: 0}, "the next batch begins with the new topic"


def test_a_log_that_was_cut_off(cluster: FakeCluster) -> None:
    start = at_ends(cluster, {T0: 25, T1: 5})
    with pytest.raises(DataLossError, match="t-0 went back from offset 25 to 20"):
        step(cluster, start)
    _, ends, end = step(cluster, start, LENIENT)
    assert ends[T0] == 20
    assert plan(cluster, start, end, LENIENT) == []


def test_the_first_batch_is_replayed_from_where_it_began(cluster: FakeCluster) -> None:
    end = StreamOffset({T0: 15, T1: 5}, origin={T0: 12, T1: 0})
    asked_again = StreamOffset({T0: 20, T1: 5}, first=True)  # what "latest" is by now
    assert plan(cluster, asked_again, end) == [Range(T0, 12, 15), Range(T1, 0, 5)]


def test_brokers_without_topic_ids(cluster: FakeCluster) -> None:
    now = Found((T0, T1), {})
    start = StreamOffset({T0: 12, T1: 5})
    begins, ends, ids = advance(start, now, {}, {T0: 20, T1: 5}, STRICT)
    assert (begins[T0], ends[T0], ids) == (12, 20, {})


def test_a_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stream meets the same gap at every trigger, many times a second."""
    loss = LossPolicy(fail=False)
    for what in ("t-0 is gone", "t-0 is gone", "t-1 is gone"):
        loss.report(what)
    assert [record.args for record in caplog.records] == [("t-0 is gone",), ("t-1 is gone",)]
