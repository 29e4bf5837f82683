"""What a run of the archive did, for people and for machines."""

from dataclasses import dataclass, field
from typing import Any

from penstock.spark.pipelines.archive.entries import Entry
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.rounds import RoundDone


@dataclass(slots=True)
class TopicSummary:
    topic: str
    topic_id: str
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    lost: int = 0
    # Everything below is archived, over all runs.
    next_offsets: dict[int, int] = field(default_factory=dict)
    rows_total: int = 0
    lost_total: int = 0


@dataclass(slots=True)
class Summary:
    """Sums over the rounds of a run. Payload is keys and values as they are; size is what the files take."""

    uri: str
    rounds: int = 0
    rows: int = 0
    payload_bytes: int = 0
    size_bytes: int = 0
    files: int = 0
    files_compacted: int = 0
    # In rounds, without the waiting between them.
    seconds: float = 0.0
    topics: dict[tuple[str, str], TopicSummary] = field(default_factory=dict)

    @property
    def mb_per_s(self) -> float:
        return self.payload_bytes / 1e6 / self.seconds if self.seconds > 0 else 0.0

    def add(self, done: RoundDone) -> None:
        self.rounds += 1
        self.rows += done.rows
        self.payload_bytes += done.payload_bytes
        self.size_bytes += done.size_bytes
        self.files += len(done.entry.added)
        self.seconds += done.seconds
        for file in done.entry.added:
            of_topic = self._of(file.topic, file.topic_id)
            of_topic.rows += file.rows
            of_topic.size_bytes += file.size_bytes
            of_topic.files += 1
        for taken in done.entry.topics:
            spans = [span for of_partition in taken.lost.values() for span in of_partition]
            self._of(taken.topic, taken.topic_id).lost += sum(end - start for start, end in spans)

    def add_compaction(self, entries: list[Entry]) -> None:
        self.files_compacted += sum(len(entry.removed) for entry in entries)

    def finish(self, manifest: Manifest, ids: dict[str, str]) -> None:
        """How far everything is archived now, also what this run had nothing to do for."""
        for topic, topic_id in ids.items():
            archive = manifest.topic(topic, topic_id)
            of_topic = self._of(topic, topic_id)
            if archive is not None:
                of_topic.next_offsets = archive.next_offsets
                of_topic.rows_total = archive.rows
                of_topic.lost_total = archive.lost_offsets

    def _of(self, topic: str, topic_id: str) -> TopicSummary:
        return self.topics.setdefault((topic, topic_id), TopicSummary(topic, topic_id))

    def as_json(self) -> dict[str, Any]:
        return {
            "to": self.uri,
            "rounds": self.rounds,
            "rows": self.rows,
            "payload_bytes": self.payload_bytes,
            "bytes": self.size_bytes,
            "files": self.files,
            "files_compacted": self.files_compacted,
            "seconds": round(self.seconds, 3),
            "mb_per_s": round(self.mb_per_s, 3),
            "topics": [
                {
                    "topic": topic.topic,
                    "id": topic.topic_id,
                    "rows": topic.rows,
                    "bytes": topic.size_bytes,
                    "files": topic.files,
                    "lost": topic.lost,
                    "archived_to": {str(at): offset for at, offset in topic.next_offsets.items()},
                    "rows_total": topic.rows_total,
                    "lost_total": topic.lost_total,
                }
                for topic in sorted(
                    self.topics.values(), key=lambda summary: (summary.topic, summary.topic_id)
                )
            ],
        }
