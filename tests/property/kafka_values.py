"""Arbitrary Kafka messages, as our classes and as kio's, for every message and version."""

import dataclasses
import typing
import uuid
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from tools.codegen.names import kafka_name
from tools.codegen.schema import HEADERS, Field, load_class, load_messages, unwrap
from tools.codegen.schema import Struct as Model

from penstock.wire.kafka.primitives import ZERO_UUID, Struct


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """One direction of one message in one version."""

    message: str
    direction: str  # "request", "response" or "data"
    version: int

    def __str__(self) -> str:
        return f"{self.message}-{self.direction}-v{self.version}"

    @property
    def module(self) -> ModuleType:
        return import_module(f"penstock.wire.kafka.generated.{self.message}")

    @property
    def kio_class(self) -> type:
        paths = schema_name_map[self.message][self.version]
        (path,) = (path for kind, path in paths.items() if kind.name == self.direction)
        return load_class(path)

    def encode(self, message: Struct) -> bytes:
        return self._function("encode")(message, self.version)  # type: ignore[no-any-return]

    def decode(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[Any, int]:
        return self._function("decode")(buffer, position, self.version)  # type: ignore[no-any-return]

    def messages(self) -> st.SearchStrategy[Struct]:
        return _structs(self, _models()[self.message, self.direction], self.kio_class)

    def sample(self, random: Random) -> Struct:
        """A message with every array filled and nothing null, so that no decoder's branch is missed."""
        return _sample(self, _models()[self.message, self.direction], random)

    def to_kio(self, message: Struct) -> Any:
        return _to_kio(self.message, message, self.kio_class)

    def _function(self, verb: str) -> Any:
        return getattr(self.module, verb if self.direction == "data" else f"{verb}_{self.direction}")


@cache
def _models() -> dict[tuple[str, str], Model]:
    return {(m.name, body.direction): body.root for m in load_messages() for body in m.bodies}


def all_cases() -> list[Case]:
    """By name, direction and version; from the index alone, so that collecting the tests loads no message."""
    return sorted(
        Case(message, kind.name, version)
        for message, versions in schema_name_map.items()
        if message not in HEADERS
        for version, kinds in versions.items()
        for kind in kinds
    )


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_LETTERS = st.characters(exclude_categories=["Cs"])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, (1 << 16) - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(ZERO_UUID),
    # Lengths on both sides of where a compact length takes a second byte.
    "string": st.text(_LETTERS, max_size=6) | st.sampled_from(["", "a" * 126, "b" * 127, "ż" * 200]),
    "bytes": st.binary(max_size=6) | st.sampled_from([b"", bytes(126), bytes(127), bytes(20_000)]),
    "records": st.binary(max_size=6) | st.sampled_from([b"", bytes(126), bytes(127), bytes(20_000)]),
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i32": _integers(32),
    # What survives kio's floating-point seconds.
    "timedelta_i64": _integers(45),
    "datetime_i64": st.integers(0, 253_402_300_799).map(lambda seconds: seconds * 1000),
}


@cache
def _kio_fields(message: str, kio_class: type) -> list[tuple[str, str, str, Any, bool, bool]]:
    """Per field: kio's name, ours, kio's type name, the Python type, whether an array, whether nullable."""
    hints = typing.get_type_hints(kio_class)
    fields = []
    for item in dataclasses.fields(kio_class):
        kind = item.metadata.get("kafka_type", "struct")
        fields.append((item.name, kafka_name(message, item.name, kind), kind, *unwrap(hints[item.name])))
    return fields


def _structs(case: Case, model: Model, kio_class: type) -> st.SearchStrategy[Struct]:
    ours = getattr(case.module, model.class_name)
    children = {field.name: field.struct for field in model.fields}
    values = {}
    for _, name, kind, inner, is_array, nullable in _kio_fields(case.message, kio_class):
        child = children[name]
        value = _VALUES[kind] if child is None else _structs(case, child, inner)
        if kind == "datetime_i64" and nullable:
            value = st.just(-1) | value
        if is_array:
            value = st.lists(value, max_size=3)
        if nullable and (is_array or kind in ("string", "bytes", "records", "struct")):
            value = st.none() | value
        values[name] = value
    return st.fixed_dictionaries(values).map(lambda fields: ours(**fields))


def _to_kio(message: str, value: Struct, kio_class: type) -> Any:
    fields: dict[str, Any] = {}
    for kio_name, name, kind, inner, is_array, _ in _kio_fields(message, kio_class):
        ours = getattr(value, name)
        if ours is None:
            fields[kio_name] = None
        elif is_array:
            fields[kio_name] = tuple(_scalar_to_kio(message, our, kind, inner) for our in ours)
        else:
            fields[kio_name] = _scalar_to_kio(message, ours, kind, inner)
    return kio_class(**fields)


def _scalar_to_kio(message: str, value: Any, kind: str, kio_class: type) -> Any:
    match kind:
        case "struct":
            return _to_kio(message, value, kio_class)
        case "uuid":
            return None if value == ZERO_UUID else uuid.UUID(bytes=value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    return value


def _sample(case: Case, model: Model, random: Random) -> Struct:
    fields = {}
    for field in model.fields:
        if case.version in field.versions:
            count = random.randint(1, 2)
            many = [_sample_value(case, field, random) for _ in range(count)]
            fields[field.name] = many if field.is_array else many[0]
    made = getattr(case.module, model.class_name)(**fields)
    assert isinstance(made, Struct)
    return made


def _sample_value(case: Case, field: Field, random: Random) -> Any:
    if field.struct is not None:
        return _sample(case, field.struct, random)
    match field.kind:
        case "string":
            return random.choice(["topic", "ż", "x" * 130])
        case "bytes" | "records":
            return random.randbytes(random.randint(1, 9))
        case "uuid":
            return random.randbytes(16)
        case "bool":
            return True
    return random.randint(1, 100)
