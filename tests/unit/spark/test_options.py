"""Options: the names and values of Spark's Kafka source, and what is said about those that are none."""

import pytest

from penstock.client.raw import EARLIEST, LATEST, TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.options import ReadOptions, read_options, write_options

WHERE = {"kafka.bootstrap.servers": "broker:9092"}


def read(streaming: bool = False, **given: str) -> ReadOptions:
    return read_options(WHERE | {"subscribe": "orders"} | given, streaming=streaming)


def dotted(name: str, value: str) -> dict[str, str]:
    return {name: value}


def test_defaults_are_those_of_the_official_source() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.headers
    assert not batch.committed
    assert batch.bootstrap == "broker:9092"


def test_names_are_case_insensitive_because_spark_lowers_them() -> None:
    parsed = read(failondataloss="FALSE", INCLUDEHEADERS="True", maxoffsetspertrigger="10")
    assert not parsed.fail_on_data_loss
    assert parsed.headers
    assert parsed.trigger_rows_max == 10


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("subscibe", "subscribe"),
        ("startingoffset", "startingOffsets"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_known_one(typo: str, meant: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {typo}: did you mean {meant}\?"):
        read(**dotted(typo, "x"))


def test_an_option_like_no_other_gets_the_list() -> None:
    with pytest.raises(OptionError, match="unknown option zzz; known are subscribe"):
        read(zzz="1")


def test_settings_of_the_official_machinery_are_accepted() -> None:
    assert read(**dotted("kafkaConsumer.pollTimeoutMs", "1"), groupIdPrefix="x").client == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none is given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": "a", "subscribePattern": "a.*"}, "subscribe and subscribePattern are given"),
    ],
)
def test_exactly_one_way_to_subscribe(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read_options(WHERE | given, streaming=False)


def test_the_three_ways_to_subscribe() -> None:
    assert read(subscribe="b, a,b").subscription.topics == ("b", "a")
    pattern = read_options(WHERE | {"subscribePattern": "o.*"}, streaming=False)
    assert pattern.subscription.pattern == "o.*"
    assigned = read_options(WHERE | {"assign": '{"t": [1, 0], "s": [2]}'}, streaming=False)
    assert assigned.subscription.partitions == (
        TopicPartition("s", 2),
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("startingOffsets", "newest", "use earliest, latest or offsets as JSON"),
        ("startingOffsets", "latest", "would be nothing"),
        ("startingOffsets", '{"t": {"0": -1}}', r"-1 \(latest\) for t-0 would be nothing"),
        ("startingOffsets", '{"t": {"0": -3}}', "neither an offset nor -2"),
        ("startingOffsets", '{"t": {"0": "5"}}', "'5' for t-0 is not a whole number"),
        ("startingOffsets", '{"t": {"x": 5}}', "'x' of t is not a partition number"),
        ("startingOffsets", '{"t": 5}', "t must have partitions"),
        ("startingOffsets", '{"t": ', "not JSON"),
        ("startingOffsets", "{}", "names no partition"),
        ("endingOffsets", "earliest", "would be nothing"),
        ("endingOffsets", '{"t": {"0": -2}}', "neither an offset nor -1"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("endingOffsetsByTimestamp", "[1]", "must be a JSON object"),
        ("startingOffsetsByTimestampStrategy", "guess", "use error or latest"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("minPartitions", "many", "at least 1"),
        ("maxRecordsPerPartition", "-5", "at least 1"),
        ("includeHeaders", "yes", "use true or false"),
        ("failOnDataLoss", "", "use true or false"),
        ("isolation.level", "serializable", "use read_committed or read_uncommitted"),
        ("maxTriggerDelay", "soon", "a duration such as"),
        ("subscribe", " , ", "names no topic"),
        ("path", "/data", "take no path"),
        ("kafka.auto.offset.reset", "earliest", "use startingOffsets"),
        ("kafka.value.deserializer", "x", "cast the column"),
    ],
)
def test_a_wrong_value_is_explained(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read(**dotted(name, value))


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(OptionError, match="not a regular expression"):
        read_options(WHERE | {"subscribePattern": "("}, streaming=False)


@pytest.mark.parametrize("text", ["[]", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', "{}", "t"])
def test_assign_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        read_options(WHERE | {"assign": text}, streaming=False)


def test_streams_have_no_end() -> None:
    with pytest.raises(OptionError, match="endingTimestamp has no meaning for a stream"):
        read(streaming=True, endingTimestamp="5")


def test_the_minimum_is_not_above_the_maximum() -> None:
    with pytest.raises(OptionError, match="larger than maxOffsetsPerTrigger"):
        read(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


def test_a_time_outranks_times_which_outrank_offsets() -> None:
    times = '{"t": {"0": 7}}'
    all_three = {"startingTimestamp": "9", "startingOffsetsByTimestamp": times, "startingOffsets": "earliest"}
    assert read(**all_three).starting.timestamp == 9
    del all_three["startingTimestamp"]
    assert read(**all_three).starting.timestamps == {TopicPartition("t", 0): 7}


def test_client_settings_lose_their_prefix_and_isolation_is_ours() -> None:
    parsed = read(**dotted("kafka.isolation.level", "read_committed"), **dotted("kafka.client.id", "me"))
    assert parsed.committed
    assert parsed.client == {"client.id": "me"}


def test_isolation_levels_that_contradict() -> None:
    with pytest.raises(OptionError, match="contradict"):
        read(
            **dotted("kafka.isolation.level", "read_committed"),
            **dotted("isolation.level", "read_uncommitted"),
        )


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("2 h", 7_200_000), ("5", 5)])
def test_durations(text: str, ms: int) -> None:
    assert read(maxTriggerDelay=text).trigger_delay_ms_max == ms


def test_without_a_broker_nothing_works() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        read_options({"subscribe": "t"}, streaming=False)


def test_the_sink_knows_its_own_options() -> None:
    parsed = write_options(WHERE | {"topic": "t", "checkpointLocation": "/c", "kafka.acks": "all"})
    assert (parsed.topic, parsed.client) == ("t", {"acks": "all"})
    with pytest.raises(OptionError, match=r"unknown option subscribe"):
        write_options(WHERE | {"subscribe": "t"})
    with pytest.raises(OptionError, match="topic is empty"):
        write_options(WHERE | {"topic": " "})
