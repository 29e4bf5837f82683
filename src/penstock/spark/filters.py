"""Filters that Spark hands down: what they let the driver leave out, and what tasks drop before Spark sees it.

`topic`, `partition` and `offset` prune ranges exactly. A lower bound on `timestamp` moves the start of a range
to the first record of that age (every record before it is older); timestamps need not rise within a
partition, so tasks also check each row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.spark.cluster import Cluster
from penstock.spark.planning import Range
from penstock.spark.schema import ARROW_TYPES

# Never null in any row, so `IS NOT NULL`, which Spark adds to every comparison, is always true.
_PUSHED: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Condition:
    """`column` op `value`; `op` is one of = < <= > >= in. Timestamps are microseconds since 1970 here."""

    column: str
    op: str
    value: Any

    def holds(self, value: object) -> bool:
        return _HOLDS[self.op](value, self.value)


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
    "in": lambda left, right: left in right,
}
_MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    conditions: tuple[Condition, ...] = field(default=())

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> "tuple[RowFilter, list[Filter]]":
        """What can be applied here, and what is left for Spark."""
        conditions, left = [], []
        for given in filters:
            if isinstance(given, IsNotNull) and given.attribute[0] in _PUSHED and len(given.attribute) == 1:
                continue
            condition = _condition(given)
            if condition is None:
                left.append(given)
            else:
                conditions.append(condition)
        return cls(tuple(conditions)), left

    def on(self, column: str) -> list[Condition]:
        return [condition for condition in self.conditions if condition.column == column]

    @property
    def rows(self) -> tuple[Condition, ...]:
        """What pruning cannot decide for whole ranges."""
        return tuple(
            condition
            for condition in self.conditions
            if condition.column == "timestamp" or (condition.column == "offset" and condition.op == "in")
        )

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for condition in self.rows:
            column = batch.column(condition.column)
            if condition.op == "in":
                mask = pc.is_in(column, value_set=pa.array(condition.value, column.type))
            else:
                mask = _MASKS[condition.op](column, pa.scalar(condition.value, ARROW_TYPES[condition.column]))
            batch = batch.filter(mask)
        return batch


def _condition(given: Filter) -> Condition | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in _PUSHED:
        return None
    column = attribute[0]
    if isinstance(given, In):
        values = tuple(value for value in given.value if value is not None)
        if column == "timestamp" or not values or not all(_fits(column, value) for value in values):
            return None
        return Condition(column, "in", values)
    op = _OPS.get(type(given))
    value: Any = getattr(given, "value", None)
    if op is None or not _fits(column, value) or (column == "topic" and op != "="):
        return None
    if column == "timestamp":
        value = (value - _EPOCH) // timedelta(microseconds=1)
    return Condition(column, op, value)


def _fits(column: str, value: object) -> bool:
    if isinstance(value, datetime):
        # Without a zone it is TIMESTAMP_NTZ, and Spark knows the session's zone; we do not.
        return column == "timestamp" and value.tzinfo is not None
    return isinstance(value, _PUSHED[column]) and not isinstance(value, bool)


def bounds_of(cluster: Cluster, wanted: RowFilter, ranges: list[Range], *, committed: bool) -> list[Range]:
    """The ranges, without what no row of can pass."""
    low, high = _offset_bounds(wanted.on("offset"))
    kept = [
        Range(part.at, max(part.start, low), min(part.end, high))
        for part in ranges
        if all(condition.holds(part.at.topic) for condition in wanted.on("topic"))
        and all(condition.holds(part.at.partition) for condition in wanted.on("partition"))
    ]
    since_us = [condition.value for condition in wanted.on("timestamp") if condition.op in ("=", ">", ">=")]
    kept = [part for part in kept if part.size]
    if since_us and kept and max(since_us) >= 0:
        since_ms = max(since_us) // 1000
        first = cluster.offsets({part.at: since_ms for part in kept}, committed=committed)
        # -1: nothing of that age at all.
        kept = [
            Range(part.at, max(part.start, first[part.at].offset), part.end)
            for part in kept
            if first[part.at].offset >= 0
        ]
    return [part for part in kept if part.size]


def _offset_bounds(conditions: list[Condition]) -> tuple[int, int]:
    low, high = 0, _OFFSET_MAX
    for condition in conditions:
        if condition.op == "in":
            low, high = max(low, min(condition.value)), min(high, max(condition.value) + 1)
        if condition.op in ("=", ">="):
            low = max(low, condition.value)
        if condition.op == ">":
            low = max(low, condition.value + 1)
        if condition.op in ("=", "<="):
            high = min(high, condition.value + 1)
        if condition.op == "<":
            high = min(high, condition.value)
    return low, high
