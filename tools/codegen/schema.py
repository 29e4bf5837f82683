"""kio's schema, one class per message and version, merged into one model per message with versions as data."""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.index import api_key_map, schema_name_map

from tools.codegen.names import class_names, kafka_name

# kio's types that are a plain number on the wire.
_NUMBERS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
HEADERS = {"request_header", "response_header"}  # written by hand, in headers.py
# Arrays of structs that Kafka defaults to null; kio does not pass that on.
_NULL_BY_DEFAULT = {
    "ConsumerGroupHeartbeatRequest": {"topic_partitions"},
    "ListPartitionReassignmentsRequest": {"topics"},
    "StreamsGroupHeartbeatRequest": {
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
    },
    "StreamsGroupHeartbeatResponse": {
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "partitions_by_user_endpoint",
    },
    "Topology": {"subtopologies"},  # of StreamsGroupDescribe
}


@dataclass
class Field:
    name: str
    kind: str  # Kafka's own type name, or "struct"
    is_array: bool
    struct: Struct | None
    default: Any  # a Python literal's value; [] for arrays, None for null, for structs anything but None
    tag: int | None
    versions: set[int] = field(default_factory=set)
    nullable: set[int] = field(default_factory=set)


@dataclass
class Struct:
    name: str  # as in kio
    versions: set[int] = field(default_factory=set)
    fields: list[Field] = field(default_factory=list)
    class_name: str = ""  # as in the generated module

    def walk(self) -> list[Struct]:
        """This struct and those below it, children first, each once."""
        found: list[Struct] = []
        for item in self.fields:
            if item.struct is not None:
                found += [struct for struct in item.struct.walk() if struct not in found]
        return [*found, self]


@dataclass
class Body:
    """One direction of an API ("request", "response"), or a message that stands alone ("data")."""

    direction: str
    root: Struct
    versions: list[int]


@dataclass
class Message:
    name: str  # the module's name
    api_key: int | None
    bodies: list[Body]
    flexible_since: int | None

    @property
    def versions(self) -> list[int]:
        return self.bodies[0].versions


def load_messages() -> list[Message]:
    keys = {name: key for key, name in api_key_map.items()}
    return [
        _load_message(name, keys.get(name), versions)
        for name, versions in sorted(schema_name_map.items())
        if name not in HEADERS
    ]


def load_class(path: str) -> type:
    module, _, name = path.partition(":")
    loaded = getattr(importlib.import_module(module), name)
    assert isinstance(loaded, type)
    return loaded


def _load_message(name: str, api_key: int | None, paths: Any) -> Message:
    by_direction: dict[str, dict[int, type]] = {}
    for version, types_ in sorted(paths.items()):
        for entity_type, path in types_.items():
            by_direction.setdefault(entity_type.name, {})[version] = load_class(path)
    bodies = [_merge(name, direction, classes) for direction, classes in sorted(by_direction.items())]
    flexible = {v for classes in by_direction.values() for v, c in classes.items() if c.__flexible__}  # type: ignore[attr-defined]
    versions = bodies[0].versions
    assert all(body.versions == versions for body in bodies), name
    assert versions == list(range(versions[0], versions[-1] + 1)), name
    assert all(v in flexible for v in versions if flexible and v >= min(flexible)), name
    class_names(bodies)
    return Message(name, api_key, bodies, min(flexible) if flexible else None)


def _merge(message: str, direction: str, classes: dict[int, type]) -> Body:
    structs: dict[str, Struct] = {}
    # Newest first: fields that are gone then slip in behind the one they used to follow.
    for version in sorted(classes, reverse=True):
        root = _merge_class(message, structs, classes[version], version)
    return Body(direction, root, sorted(classes))


def _merge_class(message: str, structs: dict[str, Struct], cls: type, version: int) -> Struct:
    struct = structs.setdefault(cls.__name__, Struct(cls.__name__))
    struct.versions.add(version)
    hints = typing.get_type_hints(cls)
    previous = -1
    order = []
    for item in dataclasses.fields(cls):
        inner, is_array, nullable = unwrap(hints[item.name])
        child = (
            _merge_class(message, structs, inner, version)
            if isinstance(inner, type) and dataclasses.is_dataclass(inner)
            else None
        )
        new = _make_field(message, item, child, is_array, nullable)
        if nullable and item.name in _NULL_BY_DEFAULT.get(cls.__name__, ()):
            new.default = None
        names = [known.name for known in struct.fields]
        if new.name not in names:
            struct.fields.insert(previous + 1, new)
            previous += 1
        else:
            previous = names.index(new.name)
            known = struct.fields[previous]
            # A field keeps its type, default and tag over all versions: the generator relies on it.
            assert dataclasses.replace(new, versions=known.versions, nullable=known.nullable) == known
            new = known
        new.versions.add(version)
        # kio says "or None" of UUIDs and times too; on the wire those have a number for it.
        if nullable and (is_array or new.kind in ("string", "bytes", "records", "struct")):
            new.nullable.add(version)
        order.append(new.name)
    assert order == [f.name for f in struct.fields if version in f.versions], (message, cls)
    return struct


def unwrap(hint: Any) -> tuple[Any, bool, bool]:
    """The inner type, whether it comes as an array, and whether the whole may be null."""
    inner, nullable = _without_none(hint)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    return inner, is_array, nullable


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    return inner, True


_ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0}


def _make_field(
    message: str, item: dataclasses.Field[Any], child: Struct | None, is_array: bool, nullable: bool
) -> Field:
    kio_kind = "struct" if child else item.metadata["kafka_type"]
    kind = _NUMBERS.get(kio_kind, kio_kind)
    return Field(
        name=kafka_name(message, item.name, kio_kind),
        kind=kind,
        is_array=is_array,
        struct=child,
        default=_default(item.default, kio_kind, kind, is_array, nullable),
        tag=item.metadata.get("tag"),
    )


def _default(value: Any, kio_kind: str, kind: str, is_array: bool, nullable: bool) -> Any:
    if is_array:
        return None if value is None else []
    if kind == "uuid":
        return bytes(16)
    if kind == "records" and nullable:
        return None
    if value is dataclasses.MISSING:
        return _ZEROS.get(kind, 0)
    if kio_kind.startswith("timedelta"):
        return value // timedelta(milliseconds=1)
    if kio_kind == "datetime_i64":
        assert value is None
        return -1
    if kind.startswith(("int", "uint")):
        return int(value)
    if kind == "struct" and value is not None:
        assert value == type(value)()  # a struct's default is the struct with its own defaults
        return 0
    return value
