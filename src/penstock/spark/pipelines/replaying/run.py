"""`replay(...)`: what the command does, as a function."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from penstock.client.raw import RawClient, RawOptions
from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.archive.lake import Lake, local_folder, open_lake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.reader import find_topic, locate
from penstock.spark.pipelines.archive.topics import TopicArchive
from penstock.spark.pipelines.replaying.errors import ReplayError
from penstock.spark.pipelines.replaying.job import job_session, run_wave
from penstock.spark.pipelines.replaying.selection import Selection, hour_of
from penstock.spark.pipelines.replaying.summary import PartitionReplayed, Replayed, lost_line
from penstock.spark.pipelines.replaying.target import Target, TargetOptions, prepare
from penstock.spark.pipelines.replaying.waves import Wave, next_wave
from penstock.spark.pipelines.status import StatusFile
from penstock.spark.session import session as make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.replaying.writing import Writer

_log = logging.getLogger(__name__)
# Compactions that take files away one after another; each costs only another look at the manifest.
_VANISHED_TRIES = 10


class Listener(Protocol):
    """Whoever wants to see a replay at work."""

    def starting(self) -> None:
        """Spark is about to start, which takes a while."""

    def started(self) -> None: ...

    def warn(self, line: str) -> None: ...

    def wave_done(self, so_far: Replayed, rows_left: int) -> None: ...


class Logged:
    """For those who call the function: what is worth a word goes to the log."""

    def starting(self) -> None:
        _log.debug("starting Spark")

    def started(self) -> None:
        _log.debug("Spark has started")

    def warn(self, line: str) -> None:
        _log.warning("%s", line)

    def wave_done(self, so_far: Replayed, rows_left: int) -> None:
        _log.info("replayed %d rows, about %d to go", so_far.rows, rows_left)


def replay(
    from_uri: str,
    topic: str,
    *,
    bootstrap: str,
    source_topic: str | None = None,
    source_topic_id: str | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    partitions: Iterable[int] | None = None,
    key: bytes | str | None = None,
    tags: Iterable[str] = (),
    create: bool = True,
    partition_count: int | None = None,
    config: Mapping[str, str] | None = None,
    append: bool = False,
    skip_corrupt: bool = False,
    compression: str = "lz4",
    spark: "SparkSession | None" = None,
    master: str = "local[*]",
    spark_config: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | None = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Replayed:
    """Replay a topic of the archive at `from_uri` into `topic`; run it again to go on where it ended.

    Times are datetimes or milliseconds since 1970, `until` is not included. `source_topic` may be left out when the
    archive has one topic only; `source_topic_id` is for one that was deleted and made anew, of which the newest is
    taken otherwise. A topic that is missing is made, with `partition_count` partitions (by default as many as the
    original had), `config`, and without a retention. `append` puts the records behind others in the target. `stop`
    ends it early, between two jobs; `finished` of what is returned then says so.
    """
    selection = Selection(
        since_ms=_ms(since),
        until_ms=_ms(until),
        partitions=None if partitions is None else frozenset(partitions),
        key=key.encode() if isinstance(key, str) else key,
        tags=tuple(sorted({tag.strip() for tag in tags} - {""})),
    )
    target = TargetOptions(topic, create, partition_count, config, append)
    client_settings = {"compression.type": compression} | dict(kafka or {})
    options = RawOptions.from_kafka(client_settings)
    listener = listener or Logged()
    made: SparkSession | None = None
    try:
        if spark is None and local_folder(from_uri) is None:
            spark = made = _started(listener, master, spark_config)
        lake = open_lake(from_uri, spark)
        run = _Run(lake, bootstrap, selection, target, listener, skip_corrupt=skip_corrupt)
        run.find(source_topic, source_topic_id)
        with RawClient(bootstrap, options) as client:
            # All that can be wrong with the target is said before Spark starts.
            run.prepare(client)
        if spark is None:
            spark = made = _started(listener, master, spark_config)
        return run.run(job_session(spark), client_settings, stop or threading.Event())
    finally:
        if made is not None:
            made.stop()


def _started(listener: Listener, master: str, config: Mapping[str, str] | None) -> "SparkSession":
    listener.starting()
    spark = make_session("penstock replay", master=master, config=config)
    listener.started()
    return spark


def _ms(given: int | datetime | None) -> int | None:
    return round(given.timestamp() * 1000) if isinstance(given, datetime) else given


class _Run:
    _archive: TopicArchive
    _target: Target

    def __init__(
        self,
        lake: Lake,
        bootstrap: str,
        selection: Selection,
        options: TargetOptions,
        listener: Listener,
        *,
        skip_corrupt: bool,
    ) -> None:
        self._lake = lake
        self._bootstrap = bootstrap
        self._selection = selection
        self._options = options
        self._listener = listener
        self._skip_corrupt = skip_corrupt
        self._corrupt: dict[str, str] = {}
        self._lost_told = 0

    # -- before Spark -------------------------------------------------------------------------------------------

    def find(self, source_topic: str | None, source_topic_id: str | None) -> None:
        manifest = Manifest.load(self._lake)
        name = source_topic
        if name is None:
            known = list(manifest.topics)
            if len(known) > 1:
                raise ReplayError(
                    f"{self._lake.uri} holds {len(known)} topics ({', '.join(known)}): choose one with --source-topic"
                )
            name = known[0] if known else self._options.topic
        self._archive = find_topic(manifest, name, source_topic_id)
        others = len(manifest.topics[name]) - 1
        if others and source_topic_id is None:
            self._listener.warn(
                f"{name} was deleted and made anew {'once' if others == 1 else f'{others} times'}: its newest "
                f"incarnation is replayed ({self._archive.topic_id}); --source-topic-id chooses another"
            )
        chosen = self._selection.partitions
        unknown = sorted(set(chosen or ()) - self._partitions())
        if unknown:
            raise ReplayError(f"{name} has no partition {unknown[0]} in {self._lake.uri}")
        self._tell_lost(self._archive)

    def _tell_lost(self, archive: TopicArchive) -> None:
        """What the archive does not have, and a replay leaves out; again when more was lost since."""
        if archive.lost_offsets <= self._lost_told:
            return
        self._lost_told = archive.lost_offsets
        self._listener.warn(lost_line(archive))

    def _partitions(self) -> set[int]:
        return set(self._archive.ranges) | set(self._archive.lost)

    def _files(self) -> list[ArchivedFile]:
        return [
            file
            for file in self._archive.files.values()
            if file.path not in self._corrupt and self._selection.may_hold(file)
        ]

    @property
    def _source(self) -> str:
        return f"{self._archive.topic}/{self._selection.name(self._archive.topic_id)}"

    def prepare(self, client: RawClient) -> None:
        files = self._files()
        wanted = {at for file in files for at in file.offsets if self._selection.has_partition(at)}
        hours = [hour for hour in map(hour_of, files) if hour is not None]
        self._target = prepare(
            client,
            self._bootstrap,
            self._options,
            original=self._archive.topic,
            partitions=max(self._partitions(), default=0) + 1,
            wanted=wanted,
            source=self._source,
            oldest_ms=min(hours, default=None),
            now_ms=time.time_ns() // 1_000_000,
            warn=self._listener.warn,
        )

    # -- with Spark ---------------------------------------------------------------------------------------------

    def run(
        self, session: "SparkSession", client_settings: dict[str, str], stop: threading.Event
    ) -> Replayed:
        from penstock.spark.pipelines.replaying.writing import Writer  # noqa: PLC0415 - needs pyarrow

        topic, archive = self._options.topic, self._archive
        topic_id = None if self._target.topic_id is None else str(self._target.topic_id)
        writer = Writer(self._bootstrap, topic, self._source, self._options.append, client_settings, topic_id)
        wanted = [at for at in sorted(self._partitions()) if self._selection.has_partition(at)]
        summary = Replayed(
            self._lake.uri,
            archive.topic,
            archive.topic_id,
            topic,
            self._target.created,
            partitions={at: PartitionReplayed(last=self._target.done.get(at, -1)) for at in wanted},
        )
        starts = {at: self._target.done.get(at, -1) + 1 for at in wanted}
        name = f"{archive.topic} from {self._lake.uri} to {topic}"
        with StatusFile("replay", name, bootstrap=self._bootstrap, topics=[topic]) as status:
            while (wave := next_wave(self._files(), starts)) is not None and not stop.is_set():
                rows, size_bytes = summary.rows, summary.size_bytes
                started = time.monotonic()
                self._run_wave(session, wave, writer, summary)
                summary.seconds += time.monotonic() - started
                starts |= {at: part.end for at, part in wave.slices.items()}
                status.update(rows=summary.rows - rows, size_bytes=summary.size_bytes - size_bytes)
                self._listener.wave_done(summary, self._left(starts))
        summary.corrupt = list(self._corrupt.values())
        summary.lost = self._lost_told
        summary.finished = wave is None
        if summary.finished:
            self._check(summary)
        return summary

    def _run_wave(self, session: "SparkSession", wave: Wave, writer: "Writer", summary: Replayed) -> None:
        """Again without a file that is damaged, or with those that a compaction put in the place of others."""
        files = list(wave.files)
        for tried in range(_VANISHED_TRIES + len(files)):
            located: dict[str, str] = {}
            try:
                located = locate(self._lake, files)
                done = run_wave(session, self._lake, wave, files, located, self._selection, writer)
            except CorruptFileError as error:
                # The first time it may be one on its way from staging to its place while we looked in both.
                if tried:
                    self._judge(error, files, located)
                files = [file for file in self._files() if _overlaps(file, wave)]
                continue
            for result in done:
                of = summary.partitions[result.partition]
                of.rows += result.rows
                of.skipped += result.skipped
                of.last = max(of.last, result.last)
                summary.size_bytes += result.size_bytes
            return
        raise ReplayError(f"files of {self._lake.uri} vanish while they are read: run again")

    def _judge(self, error: CorruptFileError, files: list[ArchivedFile], located: Mapping[str, str]) -> None:
        """A file that the manifest no longer names is no loss; any other is left out, if that is wanted."""
        named = _below_lake(error.where)
        found = [
            file
            for file in files
            if named
            in {_below_lake(path) for path in (located.get(file.path), file.path, file.staged) if path}
        ]
        now = Manifest.load(self._lake).topic(self._archive.topic, self._archive.topic_id)
        if now is not None:
            # A file that an archiver has given up meanwhile vanishes like one that was merged, but its rows are lost.
            self._tell_lost(now)
        if now is not None and not any(file.path in now.files for file in found):
            vanished = bool(found)
            self._archive.files = now.files
            if vanished:
                return
        if not self._skip_corrupt or not found:
            raise error
        for file in found:
            self._corrupt[file.path] = error.where
            offsets = ", ".join(
                f"{at}: {first} to {last}" for at, (first, last) in sorted(file.offsets.items())
            )
            self._listener.warn(f"left out {error.where}, with {file.rows} rows (offsets of {offsets})")

    def _left(self, starts: Mapping[int, int]) -> int:
        return sum(
            file.rows
            for file in self._files()
            if any(last >= starts.get(at, last + 1) for at, (_, last) in file.offsets.items())
        )

    def _check(self, summary: Replayed) -> None:
        """Where every row was wanted, every row must be there: the manifest knows how many there are."""
        fresh = all(done < 0 for done in self._target.done.values())
        if not (self._selection.everything and self._selection.partitions is None and fresh):
            return
        if self._options.append or self._corrupt:
            return
        files = self._archive.files.values()
        if any(file.limits for file in files):
            return  # how many of their rows count is known by their offsets only, and those may have gaps
        expected = sum(file.rows for file in files)
        if summary.rows + summary.skipped != expected:
            raise ReplayError(
                f"{summary.rows + summary.skipped} rows were replayed to {summary.topic}, but {expected} are archived: "
                "this is a bug in penstock"
            )


def _overlaps(file: ArchivedFile, wave: Wave) -> bool:
    return any(
        at in file.offsets and file.offsets[at][0] < part.end and file.offsets[at][1] >= part.start
        for at, part in wave.slices.items()
    )


def _below_lake(where: str) -> str:
    """From `topic=` on: Hadoop writes file:/x where we write file:///x."""
    return where.rpartition("topic=")[2]
