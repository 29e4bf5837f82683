"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs as Apache Kafka 4.3 answers them."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import alter_configs, incremental_alter_configs
from penstock.wire.kafka.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    asked: Asked, kind: int, name: str, keys: Sequence[str] | None = None, version: int = 4, **flags: bool
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[resource], **flags)
    return (await asked.ask(ApiKey.DESCRIBE_CONFIGS, request, version)).results[0]


async def value(asked: Asked, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = (await describe(asked, kind, name, [key])).configs
    return config.value, config.config_source


async def alter(
    asked: Asked, kind: int, name: str, *configs: tuple[str, str | None], only: bool = False, version: int = 2
) -> tuple[int, str | None]:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=key, value=text) for key, text in configs],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=only)
    (answer,) = (await asked.ask(ApiKey.ALTER_CONFIGS, request, version)).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


async def change(
    asked: Asked,
    kind: int,
    name: str,
    *configs: tuple[str, int, str | None],
    only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=text)
            for key, operation, text in configs
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=only
    )
    (answer,) = (await asked.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, version)).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


# -- describe ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_shows_all_settings_and_whence_they_come(version: int) -> None:
    async with Machine({"log.segment.bytes": "2000000"}).broker() as asked:
        await asked.create("t", {"retention.ms": "5"})
        result = await describe(asked, TOPIC, "t", version=version, include_synonyms=True)
        assert (result.error_code, result.error_message) == (0, "")
        shown = {config.name: config for config in result.configs}
        assert len(shown) >= 33
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5", 1)
        assert (shown["segment.bytes"].value, shown["segment.bytes"].config_source) == ("2000000", 4)
        synonyms = [
            (synonym.name, synonym.value, synonym.source) for synonym in shown["segment.bytes"].synonyms
        ]
        assert synonyms == [("log.segment.bytes", "2000000", 4), ("log.segment.bytes", "1073741824", 5)]
        assert shown["retention.ms"].config_type == (5 if version >= 3 else 0)


async def test_synonyms_and_documentation_only_where_asked() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        (plain,) = (await describe(asked, TOPIC, "t", ["segment.bytes"])).configs
        assert (plain.synonyms, plain.documentation) == ([], None)
        flags = {"include_synonyms": True, "include_documentation": True}
        (full,) = (await describe(asked, TOPIC, "t", ["segment.bytes"], **flags)).configs
        assert full.synonyms
        assert full.documentation


async def test_keys_choose_and_unknown_ones_are_left_out() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        some = await describe(asked, TOPIC, "t", ["retention.ms", "nope", "retention.ms"])
        assert [config.name for config in some.configs] == ["retention.ms"]
        everything = await describe(asked, TOPIC, "t")
        assert [c.name for c in (await describe(asked, TOPIC, "t", [])).configs] == [
            c.name for c in everything.configs
        ]


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "7", 42, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "-1", 42, "Unexpected broker id, expected 1 or empty string, but received -1"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (BROKER, "99999999999", 42, "Broker id must be an integer, but it is: 99999999999"),
        (BROKER, "1_0", 42, "Broker id must be an integer, but it is: 1_0"),
        (
            99,
            "x",
            42,
            (
                "This most likely occurs because of a request being malformed by the client library or the message "
                "was sent to an incompatible broker. See the broker logs for more details."
            ),
        ),
    ],
)
async def test_what_cannot_be_described(kind: int, name: str, code: int, message: str) -> None:
    async with Machine().broker() as asked:
        result = await describe(asked, kind, name)
        assert (result.error_code, result.error_message, result.configs) == (code, message, [])


async def test_a_broker_shows_what_can_change_while_it_runs() -> None:
    async with Machine().broker() as asked:
        shown = {config.name: config for config in (await describe(asked, BROKER, "1")).configs}
        assert shown["node.id"].read_only
        assert not shown["log.retention.ms"].read_only
        assert shown["log.retention.ms"].value is None
        assert (await describe(asked, BROKER, "")).configs == []


# -- alter -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_replacing_forgets_what_is_not_named(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", {"segment.ms": "77"})
        assert await alter(asked, TOPIC, "t", ("retention.ms", "1000"), version=version) == (0, None)
        assert asked.services.image.topics["t"].configs == {"retention.ms": "1000"}
        assert await alter(asked, TOPIC, "t", version=version) == (0, None)
        assert asked.services.image.topics["t"].configs == {}


@pytest.mark.parametrize("version", range(2))
async def test_changes_take_effect_at_once(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", {"segment.ms": "77"})
        answer = await change(asked, TOPIC, "t", ("segment.bytes", SET, "1048576"), version=version)
        assert answer == (0, None)
        assert asked.partition("t").log.settings.segment_bytes == 1048576
        assert await value(asked, TOPIC, "t", "segment.ms") == ("77", 1)
        assert await change(asked, TOPIC, "t", ("segment.ms", DELETE, None), version=version) == (0, None)
        assert await value(asked, TOPIC, "t", "segment.ms") == ("604800000", 5)


async def test_validating_changes_nothing() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        assert await change(asked, TOPIC, "t", ("retention.ms", SET, "5"), only=True) == (0, None)
        assert await alter(asked, TOPIC, "t", ("retention.ms", "5"), only=True) == (0, None)
        assert await change(asked, BROKER, "1", ("message.max.bytes", SET, "5"), only=True) == (0, None)
        assert (await alter(asked, TOPIC, "t", ("retention.ms", "x"), only=True))[0] == 40
        assert (await change(asked, BROKER, "1", ("message.max.bytes", SET, "x"), only=True))[0] == 42
        assert asked.services.image.topics["t"].configs == {}
        assert asked.services.image.broker_configs == {}


async def test_lists_grow_and_shrink() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        for operation, part, expected in (
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
        ):
            assert await change(asked, TOPIC, "t", ("cleanup.policy", operation, part)) == (0, None)
            assert (await value(asked, TOPIC, "t", "cleanup.policy"))[0] == expected


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code", "message"),
    [
        (TOPIC, "t", [("retention.ms", SET, "x")], 40,
            "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (TOPIC, "t", [("nope", SET, "x")], 40, "Unknown topic config name: nope"),
        (TOPIC, "t", [("nope", DELETE, None)], 0, None),
        (TOPIC, "t", [("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], 40,
            "Can't APPEND to key retention.ms because its type is not LIST."),
        (TOPIC, "t", [("retention.ms", 4, "1")], -1, None),
        (TOPIC, "t", [("retention.ms", -1, "1")], -1, None),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42,
            "Error due to duplicate config keys"),
        (TOPIC, "nope", [("retention.ms", SET, "1")], 3, "The topic 'nope' does not exist."),
        (TOPIC, "", [("retention.ms", SET, "1")], 42, "Default topic resources are not allowed."),
        (BROKER, "1", [("log.cleaner.threads", SET, "2")], 0, None),
        (BROKER, "1", [("nope", SET, "2")], 0, None),
        (BROKER, "1", [("broker.id", SET, "2")], 42, "Cannot update these configs dynamically: [broker.id]"),
        (BROKER, "", [("advertised.listeners", SET, "PLAINTEXT://x:1")], 42, None),
        (BROKER, "", [("log.retention.ms", SET, "100000")], 0, None),
        (BROKER, "7", [("log.cleaner.threads", SET, "2")], 42, "Unexpected broker id, expected 1, but received 7"),
        (BROKER, "x", [("log.cleaner.threads", SET, "2")], 42, "Node id must be an integer, but it is: x"),
        (99, "x", [("a", SET, "b")], 42, "Unknown resource type 99"),
    ],
)  # fmt: skip
async def test_answers_of_kafka(
    kind: int, name: str, configs: list[tuple[str, int, str | None]], code: int, message: str | None
) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        answer = await change(asked, kind, name, *configs)
        assert answer[0] == code
        if message is not None or code <= 0:
            assert answer[1] == message


async def test_a_resource_named_twice_is_refused_twice() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
        request = alter_configs.AlterConfigsRequest(resources=[resource, resource])
        answers = (await asked.ask(ApiKey.ALTER_CONFIGS, request, 2)).responses
        assert [(a.error_code, a.error_message) for a in answers] == [
            (42, "Each resource must appear at most once.")
        ] * 2


# -- brokers -----------------------------------------------------------------------------------------------------


async def test_broker_settings_reach_topics_and_the_listener_at_once() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        await change(asked, BROKER, "", ("message.max.bytes", SET, "1000"), ("max.connections", SET, "9"))
        assert asked.services.table.by_name[b"t"].config.max_message_bytes == 1000
        assert asked.broker.connections.connections_max == 9
        assert await value(asked, TOPIC, "t", "max.message.bytes") == ("1000", 3)
        await change(asked, BROKER, "1", ("message.max.bytes", SET, "2000"))
        assert await value(asked, TOPIC, "t", "max.message.bytes") == ("2000", 2)
        assert await value(asked, BROKER, "", "message.max.bytes") == ("1000", 3)
        await change(asked, BROKER, "1", ("message.max.bytes", DELETE, None))
        assert asked.services.table.by_name[b"t"].config.max_message_bytes == 1000


async def test_settings_survive_a_kill() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
        await change(asked, TOPIC, "t", ("retention.ms", SET, "5"))
        await change(asked, BROKER, "1", ("message.max.bytes", SET, "2000"), ("nope", SET, "1"))
    async with machine.broker() as asked:
        assert asked.services.config.now.message_max_bytes == 2000
        assert await value(asked, TOPIC, "t", "retention.ms") == ("5", 1)
        assert asked.services.table.by_name[b"t"].config.max_message_bytes == 2000


async def test_a_stored_setting_that_no_longer_fits_does_not_stop_the_start() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.broker.metadata.set_broker_configs(1, {"message.max.bytes": "x", "max.connections": "9"})
    async with machine.broker() as asked:
        assert asked.services.config.now.max_connections == 9


async def test_a_default_that_contradicts_a_topic_is_refused() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", {"min.compaction.lag.ms": "1000"})
        code, message = await change(asked, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "10"))
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert "min.compaction.lag.ms" in message


async def test_a_store_that_does_not_answer_leaves_it_open() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.tree.fail_next(Fault.REQUEST_LOST)
        code, _ = await change(asked, TOPIC, "t", ("retention.ms", SET, "5"))
        assert code == ErrorCode.REQUEST_TIMED_OUT


# -- loggers -----------------------------------------------------------------------------------------------------

LOGGER = 8


async def test_log_levels_are_shown_and_changed() -> None:
    name = "penstock.services.configs"
    async with Machine().broker() as asked:
        assert await change(asked, LOGGER, "1", (name, SET, "ERROR")) == (0, None)
        try:
            assert await value(asked, LOGGER, "1", name) == ("ERROR", 6)
            assert await change(asked, LOGGER, "1", (name, SET, "TRACE"), only=True) == (0, None)
            assert await value(asked, LOGGER, "1", name) == ("ERROR", 6)
        finally:
            assert await change(asked, LOGGER, "1", (name, DELETE, None)) == (0, None)
        assert await value(asked, LOGGER, "1", name) == await value(asked, LOGGER, "1", "root")


@pytest.mark.parametrize(
    ("broker", "change_", "code", "message"),
    [
        ("1", ("root", SET, "NOPE"), 40,
            ("Cannot set the log level of root to NOPE as it is not a supported log level. "
             "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN")),
        ("1", ("kafka.nope", SET, "DEBUG"), 40, "Logger kafka.nope does not exist!"),
        ("2", ("root", SET, "DEBUG"), 42, "Unexpected node id. Expected 1, but received 2"),
        ("1", ("root", APPEND, "DEBUG"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    ],
)  # fmt: skip
async def test_log_levels_that_are_refused(
    broker: str, change_: tuple[str, int, str | None], code: int, message: str
) -> None:
    async with Machine().broker() as asked:
        assert await change(asked, LOGGER, broker, change_) == (code, message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
        ("7", "Unexpected broker id, expected 1 but received 7"),
    ],
)
async def test_loggers_of_others_are_not_shown(name: str, message: str) -> None:
    async with Machine().broker() as asked:
        result = await describe(asked, LOGGER, name)
        assert (result.error_code, result.error_message, result.configs) == (42, message, [])
        assert await alter(asked, LOGGER, "1", ("root", "DEBUG")) == (42, "Unknown resource type 8")
