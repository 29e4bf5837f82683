"""Parsing and validation: a value is either understood as Kafka understands it or refused with what is allowed."""

import pytest

from penstock.config.alter import Alteration, Operation, altered
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.settings import ConfigError, render
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.core.error_codes import ErrorCode

ALL = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_default_is_valid_and_survives_its_own_text(setting):
    if setting.default is not None:
        assert setting.parse(render(setting.default)) == setting.default
    assert setting.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 1000 ", 1000),
        ("retention.ms", "-1", -1),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("compression.gzip.level", "-1", -1),
        ("follower.replication.throttled.replicas", "*", ("*",)),
        ("follower.replication.throttled.replicas", "0:101,1:102", ("0:101", "1:102")),
        ("penstock.ack.after", "synced", "synced"),
    ],
)
def test_accepts(name, text, value):
    assert TOPIC_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", str(2**63), "Not a number of type LONG"),
        ("segment.bytes", str(2**31), "Not a number of type INT"),
        ("segment.bytes", "1000", "Value must be at least 1048576"),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        (
            "compression.type",
            "none",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("penstock.ack.after", "never", "String must be one of: auto, written, synced"),
    ],
)
def test_refuses_in_kafkas_words(name, text, reason):
    with pytest.raises(ConfigError) as caught:
        TOPIC_SETTINGS[name].parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert str(caught.value) == f"Invalid value {text} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ("cleanup.policy", "delete,delete", "Configuration 'cleanup.policy' values must not be duplicated."),
        (
            "leader.replication.throttled.replicas",
            "x",
            (
                "Invalid value [x] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the "
                "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
        (
            "remote.storage.enable",
            "true",
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
    ],
)
def test_refuses_what_is_more_than_one_value(name, text, message):
    with pytest.raises(ConfigError) as caught:
        TOPIC_SETTINGS[name].parse(text)
    assert str(caught.value) == message


def test_not_a_number_is_no_ratio():
    with pytest.raises(ConfigError):
        TOPIC_SETTINGS["min.cleanable.dirty.ratio"].parse("nan")


def _alter(current, *changes):
    return altered(current, changes, TOPIC_SETTINGS, "topic")


def test_set_and_delete():
    after = _alter({"retention.ms": "1"}, Alteration("segment.ms", Operation.SET, "5"))
    assert after == {"retention.ms": "1", "segment.ms": "5"}
    assert _alter(after, Alteration("retention.ms", Operation.DELETE)) == {"segment.ms": "5"}
    assert _alter({}, Alteration("retention.ms", Operation.DELETE)) == {}


def test_append_starts_from_the_default_and_adds_nothing_twice():
    append = Alteration("cleanup.policy", Operation.APPEND, "compact")
    assert _alter({}, append) == {"cleanup.policy": "delete,compact"}
    assert _alter({"cleanup.policy": "compact"}, append) == {"cleanup.policy": "compact"}


def test_subtract_takes_only_what_is_there():
    current = {"cleanup.policy": "delete,compact"}
    assert _alter(current, Alteration("cleanup.policy", Operation.SUBTRACT, "delete")) == {
        "cleanup.policy": "compact"
    }


@pytest.mark.parametrize(("operation", "left"), [(Operation.APPEND, 400_000), (Operation.SUBTRACT, 200_000)])
def test_long_lists_are_no_work(operation, left):
    """It would take minutes, were each part compared with each other."""
    name = "leader.replication.throttled.replicas"
    there, named = (",".join(f"{number}:{broker}" for number in range(200_000)) for broker in (0, 1))
    after = _alter({name: there}, Alteration(name, operation, named))[name]
    assert len(after.split(",")) == left


@pytest.mark.parametrize(
    "change",
    [
        Alteration("retention.ms", Operation.APPEND, "1"),
        Alteration("retention.ms", Operation.SET, "x"),
        Alteration("retention.ms", Operation.SET, None),
        Alteration("cleanup.policy", Operation.APPEND, "shred"),
        Alteration("no.such.setting", Operation.SET, "1"),
        Alteration("no.such.setting", Operation.APPEND, "1"),
    ],
)
def test_refuses_alterations_that_do_not_fit(change):
    current = {"retention.bytes": "1"}
    with pytest.raises(ConfigError):
        _alter(current, Alteration("retention.bytes", Operation.SET, "2"), change)
    assert current == {"retention.bytes": "1"}


def test_what_is_not_known_can_be_deleted():
    gone = Alteration("no.such.setting", Operation.DELETE)
    assert _alter({"retention.ms": "1", "no.such.setting": "2"}, gone, gone) == {"retention.ms": "1"}


def test_a_broker_takes_any_name():
    change = Alteration("a.plugin.setting", Operation.SET, "1")
    assert altered({}, [change], BROKER_SETTINGS, "broker") == {"a.plugin.setting": "1"}
