"""Where a broker's start settings come from: flag over environment over file over default."""

from collections.abc import Mapping
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.settings import ConfigError, lookup, render

_PREFIX = "PENSTOCK_"
# Of the command line and the pipeline.
_OTHER_VARIABLES = frozenset({"PENSTOCK_BOOTSTRAP", "PENSTOCK_STATE_DIR"})
_NODE_IDS = frozenset({"node.id", "broker.id"})


def load_broker_config(
    *,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file: bytes | None = None,
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """`flags` are the `--set name=value` pairs, `file` the content of a TOML file, `defaults` those of a command."""
    given = dict(defaults or {})
    for layer in (from_toml(file) if file is not None else {}, from_environment(environment), flags):
        if not _NODE_IDS.isdisjoint(layer):
            # One setting under two names: whichever of them the stronger source has wins.
            given = {name: value for name, value in given.items() if name not in _NODE_IDS}
        given |= layer
    return BrokerConfig.resolve(given)


def environment_name(setting: str) -> str:
    """`log.segment.bytes` is PENSTOCK_LOG_SEGMENT_BYTES; `penstock.ack.after` does not repeat the prefix."""
    return _PREFIX + setting.removeprefix("penstock.").replace(".", "_").upper()


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Known settings only: other variables with the prefix belong to the command line."""
    found = {name: environment.get(environment_name(name)) for name in BROKER_SETTINGS}
    return {name: value for name, value in found.items() if value is not None}


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that nothing asks for, such as misspelt settings."""
    known = {environment_name(name) for name in BROKER_SETTINGS} | _OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(_PREFIX) and name not in known)


def from_toml(content: bytes) -> dict[str, str]:
    """Names may be dotted keys, tables or quoted: `[log]` with `segment.bytes = 1` is `log.segment.bytes`.

    Quotes are needed where one name continues another (`max.connections`, `"max.connections.per.ip"`).
    """
    import tomllib  # noqa: PLC0415 - few have a file, and every start would pay for it

    try:
        tree = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file is not valid TOML: {error}") from error
    flat: dict[str, str] = {}
    _flatten(tree, "", flat)
    for name in flat:
        lookup(BROKER_SETTINGS, "broker", name)
    return flat


def _flatten(tree: Mapping[str, Any], prefix: str, into: dict[str, str]) -> None:
    for key, value in tree.items():
        name = prefix + key
        if isinstance(value, dict):
            _flatten(value, name + ".", into)
        elif isinstance(value, list):
            into[name] = ",".join(str(part) for part in value)
        elif isinstance(value, bool | int | float | str):
            into[name] = render(value)
        else:
            raise ConfigError(f"{name} must be a text, a number, true or false, or a list of them")
