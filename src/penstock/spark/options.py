"""Options, parsed once: after this nobody looks at strings any more.

The names and their meaning are those of Spark's own Kafka source (see its integration guide), so that
switching a query over is one word. What it would ignore or misread silently is an error here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.raw import EARLIEST, LATEST, TopicPartition
from penstock.spark import option_names as names
from penstock.spark.errors import OptionError
from penstock.spark.offsets import Offsets, parse_assign, parse_numbers, parse_offsets

_TRIGGER_DELAY_MS = 15 * 60 * 1000
_DURATION = re.compile(r"(?P<number>\d+)\s*(?P<unit>ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end: exactly one of the four is set; `option` is its name, for messages."""

    option: str
    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    bootstrap: str
    subscription: Subscription
    starting: Position
    ending: Position
    latest_when_no_timestamp: bool = False
    trigger_rows_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_ms_max: int = _TRIGGER_DELAY_MS
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    headers: bool = False
    fail_on_data_loss: bool = True
    committed: bool = False
    client: dict[str, str] = field(default_factory=dict)
    # Of these partitions only records of these leader epochs, each up to its end.
    epochs: Mapping[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    # Of these offsets it is known that there are no records.
    holes: Mapping[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    bootstrap: str
    topic: str | None
    headers: bool
    client: dict[str, str]


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    options = {name.lower(): value for name, value in given.items()}
    names.check_names(given, names.READ)
    client = names.client_settings(options)
    if streaming:
        for name in names.ENDING:
            if name.lower() in options:
                raise OptionError(f"{name} has no meaning for a stream: it does not end; use spark.read")
    rows_min = _positive(options, "minOffsetsPerTrigger")
    rows_max = _positive(options, "maxOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise OptionError(
            f"minOffsetsPerTrigger ({rows_min}) is larger than maxOffsetsPerTrigger ({rows_max})"
        )
    return ReadOptions(
        bootstrap=_bootstrap(client),
        subscription=_subscription(options),
        starting=_starting(options, streaming=streaming),
        ending=_ending(options),
        latest_when_no_timestamp=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        trigger_rows_max=rows_max,
        trigger_rows_min=rows_min,
        trigger_delay_ms_max=_duration(options, "maxTriggerDelay", _TRIGGER_DELAY_MS),
        partitions_min=_positive(options, "minPartitions"),
        records_per_partition_max=_positive(options, "maxRecordsPerPartition"),
        headers=_boolean(options, "includeHeaders", default=False),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        committed=_committed(options, client),
        client=client,
        epochs=_pairs(options.get(names.EPOCHS, "{}")),
        holes=_pairs(options.get(names.HOLES, "{}")),
    )


def _pairs(text: str) -> dict[TopicPartition, tuple[tuple[int, int], ...]]:
    return {
        TopicPartition(topic, int(partition)): tuple((first, end) for first, end in pairs)
        for topic, partitions in json.loads(text).items()
        for partition, pairs in partitions.items()
    }


def includes_headers(given: Mapping[str, str]) -> bool:
    """All that the schema depends on."""
    return _boolean({name.lower(): value for name, value in given.items()}, "includeHeaders", default=False)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = {name.lower(): value for name, value in given.items()}
    names.check_names(given, names.WRITE)
    client = names.client_settings(options)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError(
            "the option topic is empty: name the topic, or leave it out and have a column topic"
        )
    return WriteOptions(
        bootstrap=_bootstrap(client),
        topic=topic,
        headers=_boolean(options, "includeHeaders", default=True),
        client=client,
    )


def _bootstrap(client: dict[str, str]) -> str:
    bootstrap = client.pop("bootstrap.servers", "").strip()
    if not bootstrap:
        raise OptionError(
            f'the option {names.BOOTSTRAP} is missing: say where the broker is, as "localhost:9092"'
        )
    return bootstrap


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in names.SUBSCRIPTIONS if name.lower() in options]
    if len(given) != 1:
        several = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"exactly one of {', '.join(names.SUBSCRIPTIONS)} says what to read; {several}")
    name, value = given[0], options[given[0].lower()].strip()
    if not value:
        raise OptionError(f"the option {name} is empty")
    if name == "assign":
        return Subscription(partitions=parse_assign(value))
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern {value!r} is not a regular expression: {error}") from None
        return Subscription(pattern=value)
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError("the option subscribe names no topic")
    return Subscription(topics=topics)


def _starting(options: Mapping[str, str], *, streaming: bool) -> Position:
    default = "latest" if streaming else "earliest"
    position = _position(options, names.STARTING, default, lowest=EARLIEST)
    if not streaming:
        if position.everywhere == LATEST:
            raise OptionError(
                "startingOffsets=latest of a batch read would be nothing; use earliest or offsets"
            )
        for at, offset in (position.offsets or {}).items():
            if offset == LATEST:
                raise OptionError(
                    f"startingOffsets: -1 (latest) for {at.topic}-{at.partition} would be nothing in a batch read"
                )
    return position


def _ending(options: Mapping[str, str]) -> Position:
    position = _position(options, names.ENDING, "latest", lowest=LATEST)
    if position.everywhere == EARLIEST:
        raise OptionError("endingOffsets=earliest would be nothing; use latest or offsets")
    return position


def _position(options: Mapping[str, str], ways: tuple[str, ...], default: str, *, lowest: int) -> Position:
    """The first of `ways` that is given counts: Spark's own source has the same order."""
    by_timestamp, by_timestamps, by_offsets = ways
    if by_timestamp.lower() in options:
        return Position(by_timestamp, timestamp=_number(options, by_timestamp))
    if by_timestamps.lower() in options:
        timestamps = parse_numbers(by_timestamps, options[by_timestamps.lower()])
        return Position(by_timestamps, timestamps=timestamps)
    value = options.get(by_offsets.lower(), default).strip()
    words = {"earliest": EARLIEST, "latest": LATEST}
    if value.lower() in words:
        return Position(by_offsets, everywhere=words[value.lower()])
    if not value.startswith("{"):
        raise OptionError(f"{by_offsets} is {value!r}: use earliest, latest or offsets as JSON")
    return Position(by_offsets, offsets=parse_offsets(by_offsets, value, lowest=lowest))


def _committed(options: Mapping[str, str], client: dict[str, str]) -> bool:
    known = {"read_committed": True, "read_uncommitted": False}
    values = [options.get("isolation.level"), client.pop("isolation.level", None)]
    given = {value.strip().lower() for value in values if value is not None}
    for value in sorted(given):
        if value not in known:
            raise OptionError(f"isolation.level is {value!r}: use read_committed or read_uncommitted")
    if len(given) > 1:
        raise OptionError("isolation.level and kafka.isolation.level contradict each other: give one of them")
    return any(known[value] for value in given)


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()].strip()
    if not text.isdecimal():
        raise OptionError(f"{name} is {text!r}: use milliseconds since 1970, as 1700000000000")
    return int(text)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"{name} is {text!r}: use a whole number of at least 1")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _choice(options, name, ("true", "false"), str(default).lower()) == "true"


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str = "") -> str:
    value = options.get(name.lower(), default or allowed[0]).strip().lower()
    if value not in allowed:
        raise OptionError(f"{name} is {value!r}: use {' or '.join(allowed)}")
    return value


def _duration(options: Mapping[str, str], name: str, default_ms: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise OptionError(f"{name} is {text!r}: use a duration such as 90s, 15m or 1h")
    return int(match["number"]) * _UNIT_MS[match["unit"]]
