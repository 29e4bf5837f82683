"""Many small files of one hour become one: a job writes it, a manifest entry puts it in their place, then they go.

Rounds every minute leave sixty files per hour and topic, and every query would open each of them.
"""

import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.pipelines.archive.committing import commit, now_text, staged
from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry
from penstock.spark.pipelines.archive.errors import ArchiveError, CorruptFileError
from penstock.spark.pipelines.archive.failures import spark_errors
from penstock.spark.pipelines.archive.job import Written, read_back, write
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.manifest import STAGING
from penstock.spark.pipelines.archive.rounds import Rounds, archived_files
from penstock.spark.pipelines.archive.tables import COLUMNS, fingerprint, read_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES = 32_000_000
# So many small files of one hour may stay.
FILES_MAX = 16
# About the size of a file that compaction makes.
FILE_BYTES = 128_000_000
# What one job takes: an hour with more is compacted bit by bit.
JOB_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one incarnation of a topic in one folder, which become fewer."""

    topic: str
    topic_id: str
    folder: str
    files: tuple[ArchivedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def groups(files: Iterable[ArchivedFile], *, files_max: int = FILES_MAX) -> list[Group]:
    """What is worth a job. Incarnations of a topic stay apart: the manifest knows them by their files."""
    found: dict[tuple[str, str, str], list[ArchivedFile]] = {}
    for file in files:
        # What no longer counts stays as it is, where it is: the broker has it no more.
        if file.size_bytes < SMALL_BYTES and not file.limits:
            found.setdefault((file.topic, file.topic_id, file.folder), []).append(file)
    made = []
    for (topic, topic_id, folder), small in sorted(found.items()):
        if len(small) <= files_max:
            continue
        taken, size_bytes = [], 0
        for file in sorted(small, key=lambda file: file.path):
            if size_bytes + file.size_bytes <= JOB_BYTES:
                taken.append(file)
                size_bytes += file.size_bytes
        if len(taken) > 1:
            made.append(Group(topic, topic_id, folder, tuple(taken)))
    return made


def compact(
    rounds: Rounds, *, files_max: int = FILES_MAX, stopped: Callable[[], bool] = lambda: False
) -> list[Entry]:
    """Every group that is due; one with a damaged file is left as it is, and said so."""
    done = []
    for group in groups(rounds.manifest.files.values(), files_max=files_max):
        if stopped():
            break
        try:
            entry = _compacted(rounds, group)
        except CorruptFileError as error:
            rounds.warn(f"{group.folder} is not compacted: {error.known}")
            continue
        commit(rounds.manifest, entry)
        done.append(entry)
    return done


def _compacted(rounds: Rounds, group: Group) -> Entry:
    """Staged, and ready to be committed."""
    session, manifest = rounds.session, rounds.manifest
    lake, number = manifest.lake, manifest.number + 1
    name = f"{number:010}-{uuid.uuid4().hex}"
    staging = f"{STAGING}/{name}"
    with staged(lake, staging):
        before = _write(session, lake, group, staging, rounds.settings.compression)
        files = read_back(session, lake, staging, Written(group.rows, 0))
        after = _sum(session, [lake.url(f"{staging}/{file.path}") for file in files], lake.uri)
        if before != after:
            raise ArchiveError(f"{group.folder} would change by compaction: it stays as it is; this is a bug")
        added = archived_files(lake, staging, files, {group.topic: group.topic_id})
        removed = tuple(file.path for file in group.files)
        entry = Entry(number, "compaction", name, now_text(), (), tuple(added), removed)
        lake.sync(file.staged for file in added if file.staged is not None)
        rounds.still_owner()
    return entry


def _write(session: "SparkSession", lake: Lake, group: Group, staging: str, compression: str) -> int:
    """Returns the sum over everything that was read."""
    from pyspark.sql import Observation  # noqa: PLC0415 - with PySpark only
    from pyspark.sql import functions as fn  # noqa: PLC0415

    observed = Observation()
    values = dict(part.split("=", 1) for part in group.folder.split("/"))
    tasks = math.ceil(group.size_bytes / FILE_BYTES)
    with spark_errors(lake.uri):
        frame = read_files(session, [lake.url(file.path) for file in group.files])
        # In ranges, not in pieces of files: each new file then holds offsets next to each other.
        spread = frame.coalesce(1) if tasks == 1 else frame.repartitionByRange(tasks, "partition", "offset")
        folders = [fn.lit(value).alias(column) for column, value in values.items()]
        counted = spread.select(*folders, *COLUMNS).observe(
            observed, fn.bit_xor(fingerprint()).alias("sum"), fn.count(fn.lit(1)).alias("rows")
        )
        write(counted, lake.url(staging), compression)
    found = observed.get
    if found["rows"] != group.rows:
        raise ArchiveError(
            f"{group.folder} has {found['rows']} rows in {len(group.files)} files, the manifest says {group.rows}: "
            "it is not compacted"
        )
    return int(found["sum"] or 0)


def _sum(session: "SparkSession", urls: list[str], where: str) -> int:
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    with spark_errors(where):
        row = read_files(session, urls).agg(fn.bit_xor(fingerprint()).alias("sum")).first()
    return int((row["sum"] if row is not None else 0) or 0)
