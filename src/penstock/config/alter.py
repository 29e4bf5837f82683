"""IncrementalAlterConfigs as a pure function: overrides in, overrides out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.config.settings import ConfigError, Setting, SettingType, lookup, render
from penstock.core.error_codes import ErrorCode


class Operation(IntEnum):
    """The protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    name: str
    operation: Operation
    value: str | None = None


def altered(
    current: Mapping[str, str], changes: Iterable[Alteration], table: Mapping[str, Setting], kind: str
) -> dict[str, str]:
    """The overrides after the changes; `ConfigError` when one of them does not fit, and then none happens.

    `kind` is "topic" or "broker". As in Kafka, a broker may be given names nobody knows (its plugins would), and any
    name may be deleted. Whether the outcome is valid as a whole is for `TopicConfig.resolve` or
    `BrokerConfig.with_changes` to say.
    """
    result = dict(current)
    for change in changes:
        if change.operation is Operation.DELETE:
            result.pop(change.name, None)
        elif change.value is None:
            raise ConfigError(f"Null value not supported for : {change.name}", ErrorCode.INVALID_REQUEST)
        elif change.operation is Operation.SET:
            if kind != "broker":
                lookup(table, kind, change.name).parse(change.value)
            result[change.name] = change.value
        else:
            result[change.name] = _list_changed(table.get(change.name), result.get(change.name), change)
    return result


def _list_changed(setting: Setting | None, current: str | None, change: Alteration) -> str:
    if setting is None or setting.type is not SettingType.LIST:
        raise ConfigError(f"Can't {change.operation.name} to key {change.name} because its type is not LIST.")
    # With no override of its own the list starts from the declared default, as in Kafka.
    parts = [part for part in (render(setting.default) if current is None else current).split(",") if part]
    named = [part.strip() for part in (change.value or "").split(",") if part.strip()]
    if change.operation is Operation.APPEND:
        there = set(parts)
        parts += [part for part in named if part not in there]
    else:
        going = set(named)
        parts = [part for part in parts if part not in going]
    text = ",".join(parts)
    setting.parse(text)
    return text
