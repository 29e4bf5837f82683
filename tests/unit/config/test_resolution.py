"""Topic and broker configs: where a value comes from, what DescribeConfigs says about it."""

import re
import typing
from dataclasses import fields
from pathlib import Path

import pytest

import penstock
from penstock.config import BrokerConfig, ConfigError, TopicConfig
from penstock.config.broker import _ATTRIBUTES as BROKER_ATTRIBUTES
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.settings import SettingType, Source
from penstock.config.sources import environment_name, load_broker_config, unknown_variables
from penstock.config.topic import _ATTRIBUTES as TOPIC_ATTRIBUTES
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.core.error_codes import ErrorCode

TWO_WEEKS_MS = 14 * 24 * 3600 * 1000
PYTHON_TYPE = {
    SettingType.BOOLEAN: bool,
    SettingType.INT: int,
    SettingType.SHORT: int,
    SettingType.LONG: int,
    SettingType.DOUBLE: float,
    SettingType.STRING: str,
    SettingType.PASSWORD: str,
    SettingType.LIST: tuple[str, ...],
}


def _topic(overrides=None, **given):
    broker = BrokerConfig.resolve({name.replace("_", "."): value for name, value in given.items()})
    return TopicConfig.resolve(overrides or {}, broker), broker


@pytest.mark.parametrize(
    ("config", "table", "attributes"),
    [
        (BrokerConfig, BROKER_SETTINGS, BROKER_ATTRIBUTES),
        (TopicConfig, TOPIC_SETTINGS, TOPIC_ATTRIBUTES),
    ],
)
def test_attributes_have_the_declared_types(config, table, attributes):
    hints = typing.get_type_hints(config)
    for attribute, name in attributes.items():
        declared = PYTHON_TYPE[table[name].type]
        assert hints[attribute] in (declared, declared | None), attribute
    assert {field.name for field in fields(config)} >= set(attributes)


def test_defaults_are_kafkas_but_for_retention():
    topic, broker = _topic()
    assert topic.retention_ms == TWO_WEEKS_MS
    assert topic.segment_bytes == 1024**3
    assert topic.max_message_bytes == broker.message_max_bytes == 1048588
    assert topic.cleanup_policy == ("delete",)
    assert topic.timestamp_after_max_ms == 3_600_000
    assert broker.socket_request_max_bytes == 104857600


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "24"}, 86_400_000),
        ({"log.retention.hours": "24", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "24", "log.retention.minutes": "2", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_gives_a_topic_its_retention(given, retention_ms):
    assert TopicConfig.resolve({}, BrokerConfig.resolve(given)).retention_ms == retention_ms


def test_a_topics_own_value_wins_and_internal_sizes_go_below_the_bound():
    topic, _ = _topic({"retention.ms": "5", "internal.segment.bytes": "100"}, log_retention_ms="9")
    assert topic.retention_ms == 5
    assert topic.segment_bytes == 100


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention.msec": "5"},
        {"retention.ms": "x"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    ],
)
def test_refuses_topic_overrides(overrides):
    with pytest.raises(ConfigError):
        _topic(overrides)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean log\.retention\.ms\?"):
        BrokerConfig.resolve({"log.retention.mss": "5"})
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: retention\.mss$"):
        _topic({"retention.mss": "5"})


@pytest.mark.parametrize(
    ("overrides", "replicas", "syncs"),
    [
        ({}, 1, True),
        ({}, 3, False),
        ({"penstock.ack.after": "written"}, 1, False),
        ({"penstock.ack.after": "synced"}, 3, True),
        ({"penstock.ack.after": "written", "flush.messages": "1"}, 3, True),
        ({"flush.messages": "1"}, 3, True),
        ({"penstock.ack.after": "written", "flush.messages": "10000"}, 1, True),
    ],
)
def test_when_an_acknowledgement_waits_for_the_disk(overrides, replicas, syncs):
    assert _topic(overrides)[0].syncs_before_ack(replicas) is syncs


def test_a_topic_is_described_with_sources_and_synonyms():
    topic, broker = _topic({"segment.bytes": "2000000"}, log_segment_bytes="3000000")
    described = {entry.name: entry for entry in topic.describe(broker)}
    entry = described["segment.bytes"]
    assert (entry.value, entry.source, entry.read_only) == ("2000000", Source.DYNAMIC_TOPIC, False)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("segment.bytes", "2000000", Source.DYNAMIC_TOPIC),
        ("log.segment.bytes", "3000000", Source.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    # Kafka shows no synonyms for a retention that is only known in hours.
    assert described["retention.ms"].synonyms == ()
    assert described["retention.ms"].source is Source.DEFAULT
    assert "internal.segment.bytes" not in described
    assert [entry.name for entry in topic.describe(broker, ["flush.ms", "no.such"])] == ["flush.ms"]


def test_dynamic_broker_settings_reach_topics_and_descriptions():
    start = BrokerConfig.resolve({"log.segment.bytes": "3000000"})
    changed = start.with_changes(dynamic_default={"log.segment.bytes": "4000000"})
    both = changed.with_changes(dynamic={"log.segment.bytes": "5000000"})
    assert [TopicConfig.resolve({}, config).segment_bytes for config in (start, changed, both)] == [
        3_000_000,
        4_000_000,
        5_000_000,
    ]
    (entry,) = both.describe(["log.segment.bytes"])
    assert (entry.source, entry.read_only) == (Source.DYNAMIC_BROKER, False)
    assert [each.source for each in entry.synonyms] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
        Source.DEFAULT,
    ]
    (default,) = both.describe_cluster_default()
    assert (default.name, default.value, default.source) == (
        "log.segment.bytes",
        "4000000",
        Source.DYNAMIC_DEFAULT_BROKER,
    )
    assert both.with_changes(dynamic={}).values["log.segment.bytes"] == 4_000_000


@pytest.mark.parametrize(
    ("level", "layer"),
    [
        ("dynamic", {"num.partitions": "3"}),
        ("dynamic_default", {"listeners": "PLAINTEXT://:1"}),
        ("dynamic", {"log.segment.bytes": "3"}),
        ("dynamic", {"no.such": "3"}),
    ],
)
def test_refuses_dynamic_changes_that_are_not_allowed(level, layer):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.resolve().with_changes(**{level: layer})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_internal_broker_settings_stay_hidden_until_given():
    hidden = "log.initial.task.delay.ms"
    assert hidden not in {entry.name for entry in BrokerConfig.resolve().describe()}
    assert hidden in {entry.name for entry in BrokerConfig.resolve({hidden: "0"}).describe()}


def test_node_id_and_broker_id_are_one_number():
    for given in ({"node.id": "7"}, {"broker.id": "7"}):
        config = BrokerConfig.resolve(given)
        assert config.node_id == config.values["broker.id"] == 7
    with pytest.raises(ConfigError, match="give one"):
        BrokerConfig.resolve({"node.id": "7", "broker.id": "8"})


def test_flag_beats_environment_beats_file_beats_default():
    file = b"""
    num.partitions = 2
    "max.connections.per.ip" = 9
    log.dirs = ["a", "b"]
    [fetch]
    max.bytes = 5000
    """
    environment = {
        "PENSTOCK_NUM_PARTITIONS": "3",
        "PENSTOCK_FETCH_MAX_BYTES": "6000",
        "PENSTOCK_BOOTSTRAP": "x",
    }
    config = load_broker_config(flags={"num.partitions": "4"}, environment=environment, file=file)
    assert config.num_partitions == 4
    assert config.fetch_max_bytes == 6000
    assert config.max_connections_per_ip == 9
    assert config.log_dirs == ("a", "b")
    assert config.queued_max_requests == 500


def test_defaults_of_a_command_are_weaker_than_everything_else() -> None:
    defaults = {"num.partitions": "7", "fetch.max.bytes": "7000"}
    config = load_broker_config(flags={}, environment={}, file=b"num.partitions = 2", defaults=defaults)
    assert (config.num_partitions, config.fetch_max_bytes) == (2, 7000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.inter.broker.protocol", "SSL"),
        ("inter.broker.listener.name", "INTERNAL"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL"),
    ],
)
def test_what_is_not_honoured_is_not_accepted(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_broker_config(flags={name: value}, environment={})


# Asked for under other names, or only allowed to have the one value that is served.
ASKED_OTHERWISE = {
    "broker.id",
    "log.dir",
    "advertised.listeners",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
    "penstock.ack.after",
}


def test_every_setting_is_asked_for_or_said_to_be_without_effect() -> None:
    source = Path(penstock.__file__).parent
    apart = {source / name for name in ("config", "wire", "client", "diagnosis", "spark")}
    text = "".join(path.read_text() for path in source.rglob("*.py") if apart.isdisjoint(path.parents))
    asked = {word.replace("_", ".") for word in re.findall(r"\w+", text)}
    asked |= set(re.findall(r'(?:values\[|\b[A-Z_]+ = )"([a-z0-9.]+)"', text)) | ASKED_OTHERWISE
    defaults = {synonym.name for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms}
    for name, setting in BROKER_SETTINGS.items():
        assert (name in asked) != setting.without_effect or name in defaults, name


def test_what_is_set_without_effect_is_told_by_name() -> None:
    flags = {
        "num.network.threads": "8",
        "num.io.threads": "8",
        "num.partitions": "3",
        "process.roles": "broker",
    }
    config = load_broker_config(flags=flags, environment={})
    assert config.without_effect() == ["num.network.threads=8", "process.roles=broker"], "8 is the default"
    later = config.with_changes(dynamic_default={"background.threads": "3"})
    assert later.without_effect() == ["background.threads=3", *config.without_effect()]
    assert load_broker_config(flags={}, environment={}).without_effect() == []


def test_misspelt_variables_are_found() -> None:
    environment = {
        "PENSTOCK_NUM_PARTITION": "3",
        "PENSTOCK_NUM_PARTITIONS": "3",
        "PENSTOCK_BOOTSTRAP": "",
        "HOME": "",
    }
    assert unknown_variables(environment) == ["PENSTOCK_NUM_PARTITION"]


def test_environment_names_are_unique_and_do_not_repeat_the_prefix():
    assert environment_name("penstock.ack.after") == "PENSTOCK_ACK_AFTER"
    assert len({environment_name(name) for name in BROKER_SETTINGS}) == len(BROKER_SETTINGS)


@pytest.mark.parametrize("file", [b"= 3", b"\xff", b"num.partition = 3", b"num.partitions = 1979-05-27"])
def test_refuses_a_bad_file(file):
    with pytest.raises(ConfigError):
        load_broker_config(flags={}, environment={}, file=file)


@pytest.mark.parametrize(
    ("flags", "environment", "number"),
    [
        ({"node.id": "7"}, {}, 7),
        ({"broker.id": "7"}, {"PENSTOCK_NODE_ID": "6"}, 7),
        ({}, {"PENSTOCK_NODE_ID": "6"}, 6),
        ({}, {}, 5),
    ],
)
def test_a_broker_id_of_a_weaker_source_does_not_contradict_a_node_id(
    flags: dict[str, str], environment: dict[str, str], number: int
) -> None:
    config = load_broker_config(flags=flags, environment=environment, file=b"broker.id = 5")
    assert config.node_id == number
    described = config.describe(["node.id", "broker.id"])
    assert [(setting.value, setting.source) for setting in described] == [
        (str(number), Source.STATIC_BROKER)
    ] * 2
