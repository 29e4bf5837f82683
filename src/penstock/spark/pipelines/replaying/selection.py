"""Which records of a topic are replayed."""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.spark.pipelines.archive.entries import ArchivedFile

if TYPE_CHECKING:
    from pyspark.sql import Column

TAGS_HEADER = "tags"
_HOUR = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})/hour=([0-9]{2})/")
_HOUR_MS = 3_600_000
_NAME_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Selection:
    """All of these at once; `until_ms` is the first time that is too late, and one of the `tags` is enough."""

    since_ms: int | None = None
    until_ms: int | None = None
    partitions: frozenset[int] | None = None
    key: bytes | None = None
    tags: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no row of a chosen partition is left out."""
        return self.since_ms is None and self.until_ms is None and self.key is None and not self.tags

    def name(self, topic_id: str) -> str:
        """The same for the same rows of the same topic, and no other.

        Partitions are left out: what is replayed of one says nothing about another.
        """
        key = None if self.key is None else self.key.hex()
        parts = json.dumps([topic_id, self.since_ms, self.until_ms, key, sorted(self.tags)])
        return hashlib.sha256(parts.encode()).hexdigest()[:_NAME_CHARACTERS]

    def has_partition(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions

    def may_hold(self, file: ArchivedFile) -> bool:
        """By the hour that its path says, and its partitions."""
        if not any(self.has_partition(partition) for partition in file.offsets):
            return False
        hour_ms = hour_of(file)
        if hour_ms is None:
            return True
        too_early = self.since_ms is not None and hour_ms + _HOUR_MS <= self.since_ms
        too_late = self.until_ms is not None and hour_ms >= self.until_ms
        return not too_early and not too_late

    def condition(self) -> "Column | None":
        """For the rows of its files."""
        from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

        wanted: list[Column] = []
        if self.since_ms is not None:
            wanted.append(fn.col("timestamp") >= fn.timestamp_millis(fn.lit(self.since_ms)))
        if self.until_ms is not None:
            wanted.append(fn.col("timestamp") < fn.timestamp_millis(fn.lit(self.until_ms)))
        if self.key is not None:
            wanted.append(fn.col("key") == fn.lit(self.key))
        if self.tags:
            wanted.append(_tagged(self.tags))
        if not wanted:
            return None
        together = wanted[0]
        for column in wanted[1:]:
            together = together & column
        return together


def hour_of(file: ArchivedFile) -> int | None:
    """When the hour of its folder begins; None when a producer's clock was so wrong that it has no such date."""
    found = _HOUR.search(file.path)
    if found is None:
        return None
    try:
        day = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(day.timestamp() * 1000) + int(found[2]) * _HOUR_MS


def _tagged(tags: tuple[str, ...]) -> "Column":
    """Tags are names, or name=value, with commas between them; several header lines count."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    def trimmed(name: "Column") -> "Column":
        # Not fn.trim itself: Spark counts its parameters, and would pass the position as what to trim.
        return fn.trim(name)

    def names(header: "Column") -> "Column":
        return fn.transform(fn.split(header["value"].cast("string"), ","), trimmed)

    wanted = fn.array(*map(fn.lit, tags))
    found = fn.exists(
        "headers",
        lambda header: (
            (header["key"] == TAGS_HEADER)
            & header["value"].isNotNull()
            & fn.arrays_overlap(names(header), wanted)
        ),
    )
    return fn.coalesce(found, fn.lit(False))
