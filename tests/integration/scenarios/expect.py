"""What a step's answer must look like: plain values are compared, dictionaries by the named entries only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.scenarios.records import Consumed, Record


class Matcher:
    """A value that knows which answers it accepts."""

    def accepts(self, got: Any) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class AtLeast(Matcher):
    low: int

    def accepts(self, got: Any) -> bool:
        return isinstance(got, int) and got >= self.low


@dataclass(frozen=True)
class Includes(Matcher):
    items: tuple[Any, ...]

    def accepts(self, got: Any) -> bool:
        return all(item in got for item in self.items)


@dataclass(frozen=True)
class Excludes(Matcher):
    items: tuple[Any, ...]

    def accepts(self, got: Any) -> bool:
        return not any(item in got for item in self.items)


@dataclass(frozen=True)
class NonEmpty(Matcher):
    def accepts(self, got: Any) -> bool:
        return bool(got)


@dataclass(frozen=True)
class TheseRecords(Matcher):
    """Exactly these records, in this order, at consecutive offsets."""

    records: Sequence[Record]
    first_offset: int = 0
    timestamps: Matcher | None = None

    def accepts(self, got: Any) -> bool:
        return len(got) == len(self.records) and all(
            self._same(consumed, record, self.first_offset + number)
            for number, (consumed, record) in enumerate(zip(got, self.records, strict=True))
        )

    def _same(self, consumed: Consumed, record: Record, offset: int) -> bool:
        if (consumed.offset, consumed.key, consumed.value) != (offset, record.key, record.value):
            return False
        if tuple(consumed.headers) != tuple(record.headers):
            return False
        if self.timestamps is not None:
            return self.timestamps.accepts(consumed.timestamp_ms)
        return record.timestamp_ms is None or record.timestamp_ms == consumed.timestamp_ms

    def __repr__(self) -> str:
        return f"{len(self.records)} records from offset {self.first_offset}"


def matches(expected: Any, got: Any) -> bool:
    if isinstance(expected, Matcher):
        return expected.accepts(got)
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(
            name in got and matches(value, got[name]) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(matches(want, have) for want, have in zip(expected, got, strict=True))
        )
    return bool(expected == got)
