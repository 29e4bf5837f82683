"""What a replay did, for people and for machines."""

from dataclasses import dataclass, field
from typing import Any

from penstock.spark.pipelines.archive.topics import TopicArchive

# A log that was compacted once may have lost every other record.
_SPANS_TOLD_MAX = 10


@dataclass(slots=True)
class PartitionReplayed:
    rows: int = 0
    skipped: int = 0  # were there already
    # The original offset of the last one that is there.
    last: int = -1


@dataclass(slots=True)
class Replayed:
    uri: str
    source_topic: str
    source_topic_id: str
    topic: str
    created: bool = False
    finished: bool = True
    seconds: float = 0.0
    size_bytes: int = 0  # of record batches, as they were sent
    partitions: dict[int, PartitionReplayed] = field(default_factory=dict)
    corrupt: list[str] = field(default_factory=list)
    lost: int = 0  # what the archive does not have: gone before it was archived, or with a file

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions.values())

    @property
    def skipped(self) -> int:
        return sum(partition.skipped for partition in self.partitions.values())

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "from": self.uri,
            "source_topic": self.source_topic,
            "source_topic_id": self.source_topic_id,
            "topic": self.topic,
            "created": self.created,
            "finished": self.finished,
            "rows": self.rows,
            "skipped": self.skipped,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_s": round(self.rows_per_s, 1),
            "partitions": {
                str(number): {
                    "rows": partition.rows,
                    "skipped": partition.skipped,
                    "last_offset": partition.last,
                }
                for number, partition in sorted(self.partitions.items())
            },
            "corrupt": self.corrupt,
            "lost": self.lost,
        }


def lost_line(archive: TopicArchive) -> str:
    """What is lost of a topic of the archive, in words."""
    spans = [(at, start, end) for at, found in sorted(archive.lost.items()) for start, end in found]
    parts = [f"partition {at}: {start} to {end - 1}" for at, start, end in spans[:_SPANS_TOLD_MAX]]
    if len(spans) > _SPANS_TOLD_MAX:
        parts.append(f"{len(spans) - _SPANS_TOLD_MAX} more ranges")
    if archive.lost_among:
        parts.append(f"{archive.lost_among} rows between others")
    return (
        f"{archive.lost_offsets} offsets of {archive.topic} are not replayed ({', '.join(parts)}): they are noted as "
        "lost, from before they were archived or with a file of the archive"
    )
