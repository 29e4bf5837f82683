"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    Case,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, some
from tests.clients.oracle.variants.topics import BAD_CONFIGS, GOOD_CONFIGS

from penstock.wire.kafka.generated import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.oracle.sides import Side

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_TYPES = (0, 1, 5, -1, 99)
SET, DELETE, APPEND, SUBTRACT = range(4)
# Stands for the broker's own id, which the sides need not share.
SELF = "<self>"
TOPIC_KEYS = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type"]
BROKER_KEYS = [
    "log.retention.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "num.partitions",
    "log.retention.hours",
]
DYNAMIC_BROKER = ("log.retention.ms", "message.max.bytes", "log.segment.bytes", "compression.type")


def _name(side: Side, name: str) -> str:
    return str(side.node_id) if name == SELF else name


# DescribeConfigs


def _describe(kind: int, name: str, keys: list[str] | None, **options: bool) -> Any:
    def build(side: Side) -> Any:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=_name(side, name), configuration_keys=keys
        )
        return describe_configs.DescribeConfigsRequest(resources=[resource], **options)

    return build


def _options(ctx: Context) -> dict[str, bool]:
    options = {"include_synonyms": ctx.rng.random() < 0.5}
    if ctx.version >= 3:
        options["include_documentation"] = ctx.rng.random() < 0.3
    return options


@variant(DESCRIBE_CONFIGS, "topic, all", valid=True)
def _(ctx: Context) -> Any:
    return _describe(TOPIC, ctx.rng.choice(ctx.world.topics), None, **_options(ctx))


@variant(DESCRIBE_CONFIGS, "topic, some", valid=True)
def _(ctx: Context) -> Any:
    return _describe(TOPIC, ctx.rng.choice(ctx.world.topics), some(ctx.rng, TOPIC_KEYS), **_options(ctx))


@variant(DESCRIBE_CONFIGS, "topic, empty list", valid=True)
def _(ctx: Context) -> Any:
    return _describe(TOPIC, "configured", [], **_options(ctx))


@variant(DESCRIBE_CONFIGS, "broker, some", valid=True)
def _(ctx: Context) -> Any:
    return _describe(BROKER, SELF, some(ctx.rng, BROKER_KEYS), **_options(ctx))


@variant(DESCRIBE_CONFIGS, "broker, all", valid=True)
def _(ctx: Context) -> Any:
    return _describe(BROKER, SELF, None, **_options(ctx))


@variant(DESCRIBE_CONFIGS, "cluster default", valid=True)
def _(ctx: Context) -> Any:
    return _describe(BROKER, "", ctx.rng.choice([None, BROKER_KEYS]), **_options(ctx))


@variant(DESCRIBE_CONFIGS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _describe(TOPIC, ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), None)


@variant(DESCRIBE_CONFIGS, "unknown key", valid=False)
def _(ctx: Context) -> Any:
    return _describe(ctx.rng.choice([TOPIC]), "plain", ["no.such", "retention.ms", "retention.ms", ""])


@variant(DESCRIBE_CONFIGS, "unknown broker", valid=False)
def _(ctx: Context) -> Any:
    return _describe(BROKER, ctx.rng.choice(["7", "-1", "x", " ", "1.5", "99999999999"]), None)


@variant(DESCRIBE_CONFIGS, "unknown broker logger", valid=False)
def _(ctx: Context) -> Any:
    return _describe(LOGGER, ctx.rng.choice(["7", "x", ""]), None)


@variant(DESCRIBE_CONFIGS, "unknown resource type", valid=False)
def _(ctx: Context) -> Any:
    return _describe(ctx.rng.choice(UNKNOWN_TYPES), "plain", None)


# AlterConfigs and IncrementalAlterConfigs


def _after(ctx: Context, kind: int, name: str) -> dict[str, Any]:
    """What the change left behind, read back."""
    build = _describe(kind, name, None, include_synonyms=True)
    follow_up = Case(DESCRIBE_CONFIGS, 4, "after the change", True, build, eventually=True)
    return {"follow_ups": (follow_up,)}


def _alter(kind: int, name: str, configs: list[tuple[str, Any]], *, validate_only: bool = False) -> Any:
    def build(side: Side) -> Any:
        resource = alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=_name(side, name),
            configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
        )
        return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)

    return build


@variant(ALTER_CONFIGS, "topic", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.world.spare_topic()
    return _alter(TOPIC, name, list(ctx.rng.choice(GOOD_CONFIGS).items())), _after(ctx, TOPIC, name)


@variant(ALTER_CONFIGS, "validate only", valid=True)
def _(ctx: Context) -> Any:
    changes = list(ctx.rng.choice(GOOD_CONFIGS).items())
    return _alter(TOPIC, "plain", changes, validate_only=True), _after(ctx, TOPIC, "plain")


@variant(ALTER_CONFIGS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _alter(TOPIC, "plain", [])


@variant(ALTER_CONFIGS, "bad config", valid=False)
def _(ctx: Context) -> Any:
    return _alter(TOPIC, "plain", list(ctx.rng.choice(BAD_CONFIGS).items()))


@variant(ALTER_CONFIGS, "config twice", valid=False)
def _(ctx: Context) -> Any:
    return _alter(TOPIC, "plain", [("retention.ms", "1"), ("retention.ms", "2")])


@variant(ALTER_CONFIGS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _alter(TOPIC, ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), [("retention.ms", "1")])


@variant(ALTER_CONFIGS, "read-only broker config", valid=False)
def _(ctx: Context) -> Any:
    return _alter(BROKER, SELF, [(ctx.rng.choice(["log.dirs", "node.id", "listeners"]), "x")])


@variant(ALTER_CONFIGS, "unknown broker", valid=False)
def _(ctx: Context) -> Any:
    return _alter(BROKER, ctx.rng.choice(["7", "x", "-1"]), [("log.retention.ms", "1000")])


@variant(ALTER_CONFIGS, "unknown resource type", valid=False)
def _(ctx: Context) -> Any:
    return _alter(ctx.rng.choice([*UNKNOWN_TYPES, LOGGER]), "plain", [("retention.ms", "1")])


def _change(
    kind: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
) -> Any:
    def build(side: Side) -> Any:
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=_name(side, name),
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        return incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )

    return build


@variant(INCREMENTAL_ALTER_CONFIGS, "set", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.world.spare_topic()
    changes = [(key, SET, value) for key, value in ctx.rng.choice(GOOD_CONFIGS).items()]
    return _change(TOPIC, name, changes), _after(ctx, TOPIC, name)


@variant(INCREMENTAL_ALTER_CONFIGS, "delete", valid=True)
def _(ctx: Context) -> Any:
    key = ctx.rng.choice(["retention.ms", "max.message.bytes", "no.such", "segment.ms"])
    return _change(TOPIC, "configured", [(key, DELETE, None)]), _after(ctx, TOPIC, "configured")


@variant(INCREMENTAL_ALTER_CONFIGS, "append and subtract", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.world.spare_topic()
    changes = ctx.rng.choice(
        [
            [("cleanup.policy", APPEND, "compact")],
            [("cleanup.policy", APPEND, "delete")],
            [("cleanup.policy", SUBTRACT, "delete")],
            [("cleanup.policy", SUBTRACT, "compact")],
        ]
    )
    return _change(TOPIC, name, changes), _after(ctx, TOPIC, name)


@variant(INCREMENTAL_ALTER_CONFIGS, "validate only", valid=True)
def _(ctx: Context) -> Any:
    changes = [(key, SET, value) for key, value in ctx.rng.choice(GOOD_CONFIGS).items()]
    return _change(TOPIC, "plain", changes, validate_only=True), _after(ctx, TOPIC, "plain")


@variant(INCREMENTAL_ALTER_CONFIGS, "broker", valid=True)
def _(ctx: Context) -> Any:
    name, value = ctx.rng.choice(
        [("log.retention.ms", "777777"), ("message.max.bytes", "2000000"), ("log.segment.bytes", "2097152")]
    )
    where = ctx.rng.choice([SELF, ""])
    # Taken back at once: other requests depend on the defaults.
    undo = Case(INCREMENTAL_ALTER_CONFIGS, 1, "undo", True, _change(BROKER, where, [(name, DELETE, None)]))
    keys = [name, "log.retention.hours"]
    look = Case(
        DESCRIBE_CONFIGS,
        4,
        "broker after the change",
        True,
        _describe(BROKER, SELF, keys, include_synonyms=True),
        eventually=True,
    )
    topic = Case(
        DESCRIBE_CONFIGS,
        4,
        "topic after a broker's change",
        True,
        _describe(TOPIC, "plain", TOPIC_KEYS, include_synonyms=True),
        eventually=True,
    )
    return _change(BROKER, where, [(name, SET, value)]), {"follow_ups": (look, topic, undo, look)}


@variant(INCREMENTAL_ALTER_CONFIGS, "bad config", valid=False)
def _(ctx: Context) -> Any:
    return _change(TOPIC, "plain", [(key, SET, value) for key, value in ctx.rng.choice(BAD_CONFIGS).items()])


@variant(INCREMENTAL_ALTER_CONFIGS, "config twice", valid=False)
def _(ctx: Context) -> Any:
    second = ctx.rng.choice([("retention.ms", SET, "2"), ("retention.ms", DELETE, None)])
    return _change(TOPIC, "plain", [("retention.ms", SET, "1"), second])


@variant(INCREMENTAL_ALTER_CONFIGS, "append to a number", valid=False)
def _(ctx: Context) -> Any:
    return _change(TOPIC, "plain", [("retention.ms", ctx.rng.choice([APPEND, SUBTRACT]), "1")])


@variant(INCREMENTAL_ALTER_CONFIGS, "unknown operation", valid=False)
def _(ctx: Context) -> Any:
    return _change(TOPIC, "plain", [("retention.ms", ctx.rng.choice([4, -1, 127]), "1")])


@variant(INCREMENTAL_ALTER_CONFIGS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _change(TOPIC, ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), [("retention.ms", SET, "1")])


@variant(INCREMENTAL_ALTER_CONFIGS, "read-only or unknown broker config", valid=False)
def _(ctx: Context) -> Any:
    key = ctx.rng.choice(["log.dirs", "node.id", "process.roles"])
    return _change(BROKER, ctx.rng.choice([SELF, ""]), [(key, SET, "x")])


@variant(INCREMENTAL_ALTER_CONFIGS, "bad broker value", valid=False)
def _(ctx: Context) -> Any:
    return _change(BROKER, SELF, [(ctx.rng.choice(DYNAMIC_BROKER), SET, "soon")])


@variant(INCREMENTAL_ALTER_CONFIGS, "unknown broker", valid=False)
def _(ctx: Context) -> Any:
    return _change(BROKER, ctx.rng.choice(["7", "x", "-1"]), [("log.retention.ms", SET, "1000")])


@variant(INCREMENTAL_ALTER_CONFIGS, "unknown resource type", valid=False)
def _(ctx: Context) -> Any:
    return _change(ctx.rng.choice(UNKNOWN_TYPES), "plain", [("retention.ms", SET, "1")])


@variant(INCREMENTAL_ALTER_CONFIGS, "resource twice", valid=False)
def _(ctx: Context) -> Any:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="plain")
    return lambda _: incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource, resource])


# ListConfigResources


def _list(kinds: Sequence[int]) -> Any:
    return lambda _: list_config_resources.ListConfigResourcesRequest(resource_types=list(kinds))


@variant(LIST_CONFIG_RESOURCES, "all", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    return _list([])


@variant(LIST_CONFIG_RESOURCES, "some kinds", valid=True, versions=(1, 99), eventually=True)
def _(ctx: Context) -> Any:
    return _list(some(ctx.rng, [TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP]))


@variant(LIST_CONFIG_RESOURCES, "a kind twice", valid=True, versions=(1, 99), eventually=True)
def _(ctx: Context) -> Any:
    return _list([TOPIC, BROKER, TOPIC])


@variant(LIST_CONFIG_RESOURCES, "unknown kind", valid=False, versions=(1, 99))
def _(ctx: Context) -> Any:
    return _list([TOPIC, ctx.rng.choice(UNKNOWN_TYPES)])
