"""Records as the scenarios see them, and their JSON form for clients in other languages."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """What a producer sends. Without a timestamp the client stamps it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consumer gets back."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def record_to_json(record: Record) -> dict[str, Any]:
    return {
        "key": _encode(record.key),
        "value": _encode(record.value),
        "headers": [[name, _encode(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def consumed_from_json(entry: dict[str, Any]) -> Consumed:
    return Consumed(
        offset=entry["offset"],
        key=_decode(entry["key"]),
        value=_decode(entry["value"]),
        headers=tuple((name, _decode(value)) for name, value in entry["headers"]),
        timestamp_ms=entry["timestamp"],
    )


def keyed(count: int, value_bytes: int = 200) -> tuple[Record, ...]:
    """Records that compress well and differ from each other."""
    return tuple(
        Record(key=b"key-%d" % (number % 7), value=(b"value-%06d " % number).ljust(value_bytes, b"."))
        for number in range(count)
    )


def incompressible(count: int, value_bytes: int) -> tuple[Record, ...]:
    source = random.Random(value_bytes)
    return tuple(Record(key=b"%d" % number, value=source.randbytes(value_bytes)) for number in range(count))
