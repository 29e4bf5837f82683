"""An archive made without Spark: what a round leaves behind, from the same manifest, in a moment."""

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.client.raw import EARLIEST, LATEST, RawClient, TopicPartition
from penstock.records.columns.decode import decode
from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry, TopicRound
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.reading import to_batch
from penstock.spark.schema import ARROW_TYPES

SCHEMA = pa.schema(
    [
        (name, ARROW_TYPES[name])
        for name in ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    ]
)


class HandLake:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._lake = FolderLake(folder)

    def take(self, topic: str, until: int | None = None) -> None:
        """Everything that is not archived yet, below offset `until`; what the log has lost is noted as lost."""
        manifest = Manifest.load(self._lake)
        number = manifest.number + 1
        with RawClient(self._bootstrap) as client:
            info = client.describe([topic])[topic]
            known = manifest.topic(topic, str(info.topic_id))
            ats = [TopicPartition(topic, partition) for partition in info.partitions]
            starts = client.offsets(dict.fromkeys(ats, EARLIEST))
            ends = client.offsets(dict.fromkeys(ats, LATEST))
            spans, lost, tables = {}, {}, []
            for at in ats:
                start = starts[at].offset if known is None else known.next_offsets.get(at.partition, 0)
                if start < starts[at].offset:
                    lost[at.partition] = ((start, starts[at].offset),)
                    start = starts[at].offset
                end = ends[at].offset if until is None else max(start, min(until, ends[at].offset))
                spans[at.partition] = (start, end)
                for fetched in client.fetch(at, start, end):
                    columns = decode(fetched.records, first=start, end=end, headers=True)
                    tables.append(pa.Table.from_batches([to_batch(columns, at, SCHEMA)]))
        topic_id = str(info.topic_id)
        added = self._write(topic, topic_id, number, tables)
        taken = TopicRound(topic, topic_id, spans, lost)
        manifest.commit(
            Entry(number, "round", uuid.uuid4().hex, "2025-01-01T00:00:00Z", (taken,), tuple(added))
        )

    def merge(self, topic: str) -> None:
        """What a compaction does: the files of each hour become one."""
        manifest = Manifest.load(self._lake)
        archive = manifest.topic(topic)
        assert archive is not None
        old = list(archive.files.values())
        tables = [pq.read_table(self.folder / file.path, partitioning=None) for file in old]
        added = self._write(topic, archive.topic_id, manifest.number + 1, tables)
        entry = Entry(
            manifest.number + 1,
            "compaction",
            uuid.uuid4().hex,
            "2025-01-01T00:00:00Z",
            (),
            tuple(added),
            tuple(file.path for file in old),
        )
        manifest.commit(entry)
        for file in old:
            (self.folder / file.path).unlink()

    def _write(self, topic: str, topic_id: str, number: int, tables: list[pa.Table]) -> list[ArchivedFile]:
        if not tables:
            return []
        rows = pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
        hours = pc.strftime(rows.column("timestamp"), "date=%Y-%m-%d/hour=%H")
        added = []
        for index, hour in enumerate(sorted(pc.unique(hours).to_pylist())):
            part = rows.filter(pc.equal(hours, hour))
            path = f"topic={topic}/{hour}/{number:010}-{index:04}.parquet"
            where = self.folder / path
            where.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, where, write_page_checksum=True)
            spans = part.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
            offsets = {span["partition"]: (span["offset_min"], span["offset_max"]) for span in spans}
            size_bytes = where.stat().st_size
            added.append(ArchivedFile(path, topic, topic_id, part.num_rows, size_bytes, offsets))
        return added
