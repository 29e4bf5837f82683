"""What the tests of the archive are made of."""

from collections.abc import Mapping

from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry, Kind, Span, TopicRound
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.manifest import STAGING, Manifest

ID = "4b961ac9-4c45-1c84-0d84-bdfda6a1a2a4"
OTHER_ID = "00000000-4c45-1c84-0d84-bdfda6a1a2a4"
HOUR = "date=2025-01-31/hour=07"


def file(
    number: int,
    offsets: Mapping[int, Span] | None = None,
    *,
    topic: str = "t",
    topic_id: str = ID,
    size_bytes: int = 4,
    rows: int = 10,
    staged: bool = True,
) -> ArchivedFile:
    path = f"topic={topic}/{HOUR}/{number:010}-0000.parquet"
    where = f"{STAGING}/{round_name(number)}/topic={topic}/{HOUR}/part-0.parquet" if staged else None
    return ArchivedFile(path, topic, topic_id, rows, size_bytes, dict(offsets or {0: (0, 9)}), where)


def round_name(number: int) -> str:
    return f"{number:010}-abc"


def entry(
    number: int,
    partitions: Mapping[int, Span] | None = None,
    *,
    kind: Kind = "round",
    topic: str = "t",
    topic_id: str = ID,
    lost: Mapping[int, tuple[Span, ...]] | None = None,
    added: tuple[ArchivedFile, ...] = (),
    removed: tuple[str, ...] = (),
) -> Entry:
    topics = () if partitions is None else (TopicRound(topic, topic_id, partitions, lost or {}),)
    return Entry(number, kind, round_name(number), "2025-01-31T07:00:00Z", topics, added, removed)


def committed(lake: Lake, *entries: Entry) -> Manifest:
    manifest = Manifest.load(lake)
    for new_entry in entries:
        manifest.commit(new_entry)
    return manifest
