"""Where two normalised answers differ: a path into the message and the two values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# What identifies an entry of a list; order is not compared, as brokers answer from hash maps.
KEYS = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "api_key",
    "node_id",
    "broker_id",
    "producer_id",
    "log_dir",
    "batch_index",
    "base_offset",
    "source",
    "key",
    "group_id",
    "member_id",
    "group_instance_id",
)
# Lists whose entries are told apart in the path: a setting or an API is worth a name.
NAMED = frozenset({"configs", "api_keys", "supported_features", "finalized_features"})
ABSENT = "<absent>"
PRESENT = "<present>"


@dataclass(frozen=True)
class Difference:
    path: str
    left: Any
    right: Any


def differences(left: Any, right: Any, path: str = "") -> list[Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for name in left.keys() | right.keys():
            below = f"{path}.{name}" if path else name
            found += differences(left.get(name, ABSENT), right.get(name, ABSENT), below)
        return found
    if isinstance(left, list) and isinstance(right, list):
        return _list_differences(left, right, path)
    return [] if left == right and type(left) is type(right) else [Difference(path, left, right)]


def _list_differences(left: list[Any], right: list[Any], path: str) -> list[Difference]:
    if not all(isinstance(item, dict) for item in left + right):
        return [] if left == right else [Difference(path, left, right)]
    found = []
    others = _by_key(right)
    for key, item in _by_key(left).items():
        below = f"{path}[{_shown(path, key)}]"
        if key in others:
            found += differences(item, others.pop(key), below)
        else:
            found.append(Difference(below, PRESENT, ABSENT))
    return found + [Difference(f"{path}[{_shown(path, key)}]", ABSENT, PRESENT) for key in others]


def _by_key(items: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    keyed: dict[tuple[Any, ...], dict[str, Any]] = {}
    for item in items:
        key = tuple(str(item[name]) for name in KEYS if name in item and not _implied(name, item))
        repeat = 0
        while (*key, repeat) in keyed:
            repeat += 1
        keyed[(*key, repeat)] = item
    return keyed


def _implied(name: str, item: dict[str, Any]) -> bool:
    """Not what identifies an entry: a topic's id beside its name, the offset that a partition's answer gives."""
    return (name == "topic_id" and bool(item.get("name"))) or (name == "base_offset" and "index" in item)


def _shown(path: str, key: tuple[Any, ...]) -> str:
    return str(key[0]) if path.rpartition(".")[2] in NAMED else ""
