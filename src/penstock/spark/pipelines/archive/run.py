"""A run of the archive: rounds until everything is archived, or until told to stop."""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.client.raw import RawError, TopicPartition
from penstock.spark.pipelines.archive.compaction import compact
from penstock.spark.pipelines.archive.errors import ArchiveError
from penstock.spark.pipelines.archive.failures import BrokerLostError, ReadLostError
from penstock.spark.pipelines.archive.lake import local_folder, open_lake
from penstock.spark.pipelines.archive.lake_id import lake_id
from penstock.spark.pipelines.archive.lock import Lock
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.planning import Bounds
from penstock.spark.pipelines.archive.rounds import RoundDone, Rounds, Settings
from penstock.spark.pipelines.archive.source import Source
from penstock.spark.pipelines.archive.summary import Summary
from penstock.spark.pipelines.archive.survey import check_topics
from penstock.spark.pipelines.archive.tables import own_session
from penstock.spark.pipelines.status import StatusFile
from penstock.spark.session import session as make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
# A leader may lower what it was told, and a word may get lost: after so long it is said again.
TELL_SECONDS = 60.0
CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


class Listener(Protocol):
    """Whoever wants to see a run at work."""

    def started(self) -> None:
        """Spark runs now."""

    def warn(self, line: str) -> None: ...

    def round_done(self, done: RoundDone, summary: Summary) -> None: ...

    def compacted(self, files: int) -> None: ...


class Logged:
    """For those who call the function: what is worth a word goes to the log."""

    def started(self) -> None:
        _log.debug("Spark is ready")

    def warn(self, line: str) -> None:
        _log.warning("%s", line)

    def round_done(self, done: RoundDone, summary: Summary) -> None:
        _log.info("archived %d rows, %d in this run", done.rows, summary.rows)

    def compacted(self, files: int) -> None:
        _log.info("compacted %d files", files)


@dataclass(frozen=True, slots=True)
class Job:
    """What to archive, where to and how; see `api.archive` for what each means."""

    topics: tuple[str, ...]
    to: str
    bootstrap: str
    pattern: str | None
    every_s: float | None
    master: str
    spark_config: Mapping[str, str]
    kafka: Mapping[str, str]
    fail_on_data_loss: bool
    compression: str
    compact_files: int | None
    round_bytes: int
    round_rows: int
    take_over: bool = False

    def check(self) -> None:
        """What can be said before anything is started."""
        if not self.topics and self.pattern is None:
            raise ArchiveError("no topic is named: give a topic, or a pattern")
        if self.compression not in CODECS:
            raise ArchiveError(f"compression {self.compression!r} is unknown: use one of {', '.join(CODECS)}")
        local_folder(self.to)


def run(
    job: Job,
    *,
    spark: "SparkSession | None" = None,
    listener: Listener | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    job.check()
    listener = listener or Logged()
    with ExitStack() as closing_all:
        source = Source(job.bootstrap, job.topics, job.pattern, job.kafka)
        closing_all.callback(source.close)
        source.find()  # a broker that does not answer is known before Spark has started
        lake = lock = None
        if local_folder(job.to) is not None:
            # Likewise somebody else at work, and topics that are nowhere; elsewhere we need Spark to look.
            lake = open_lake(job.to)
            lock = closing_all.enter_context(Lock(lake))
            check_topics(source, Manifest.load(lake))
        if spark is None:
            spark = make_session("penstock archive", master=job.master, config=job.spark_config)
            closing_all.callback(spark.stop)
        listener.started()
        session = own_session(spark)
        if lake is None or lock is None:
            lake = open_lake(job.to, session)
            lock = closing_all.enter_context(Lock(lake))
        source.archive_to(lake_id(lake), take_over=job.take_over)
        what = ", ".join(job.topics) if job.topics else f"/{job.pattern}/"
        status = StatusFile("archive", f"{what} to {job.to}", bootstrap=job.bootstrap, topics=job.topics)
        closing_all.enter_context(status)
        settings = Settings(job.compression, Bounds(job.round_bytes, job.round_rows), job.fail_on_data_loss)
        rounds = Rounds(session, lake, source, settings, still_owner=lock.check, warn=listener.warn)
        return _Run(job, rounds, listener, stop or threading.Event(), status).run()


class _Run:
    def __init__(
        self,
        job: Job,
        rounds: Rounds,
        listener: Listener,
        stop: threading.Event,
        status: StatusFile,
    ) -> None:
        self._job = job
        self._rounds = rounds
        self._listener = listener
        self._stop = stop
        self._status = status
        self._summary = Summary(job.to)
        self._told_at = time.monotonic()

    def run(self) -> Summary:
        rounds, every_s = self._rounds, self._job.every_s
        rounds.recover()
        rounds.tell()
        until = rounds.ends() if every_s is None else None
        # One that has a leader again before the run ends is left out all the same: nobody knew where it ended.
        left_out = rounds.survey.unled if every_s is None else ()
        while True:
            next_at = time.monotonic() + (every_s or 0.0)
            try:
                self._catch_up(until)
                self._tell_again()
                self._compact()
            except (RawError, BrokerLostError, ReadLostError) as error:
                # A broker that restarts, or a topic that goes, is no reason to end what runs for ever; the lake is as
                # it was.
                if every_s is None:
                    raise
                self._listener.warn(f"{error}; trying again in {every_s:g} s")
            if every_s is None or self._stop.wait(max(0.0, next_at - time.monotonic())):
                break
        if every_s is None and (unled := sorted({*left_out, *rounds.survey.unled})):
            raise BrokerLostError(
                f"{', '.join(map(str, unled))}: no leader answers; everything else is archived. Run the same command "
                "again when it has one (`penstock why TOPIC`)"
            )
        with suppress(RawError):  # what was archived is archived, whether the broker is there or not
            self._summary.finish(rounds.manifest, rounds.ids())
        return self._summary

    def _catch_up(self, until: Mapping[TopicPartition, int] | None) -> None:
        """Rounds until nothing is left; each is bounded, however much there is."""
        while not self._stop.is_set():
            done = self._rounds.run(until)
            if done is None:
                self._status.update(state="waiting")
                return
            self._summary.add(done)
            self._tell()
            self._status.update(
                topics=sorted(done.plan.ids),
                offsets=self._rounds.positions(),
                rows=done.rows,
                size_bytes=done.payload_bytes,
            )
            self._listener.round_done(done, self._summary)

    def _tell(self) -> None:
        self._rounds.tell()
        self._told_at = time.monotonic()

    def _tell_again(self) -> None:
        """Until the broker has heard it; with nothing new to archive nobody else would say it."""
        if not self._rounds.told or time.monotonic() - self._told_at >= TELL_SECONDS:
            self._tell()

    def _compact(self) -> None:
        files_max = self._job.compact_files
        if files_max is None:
            return
        entries = compact(self._rounds, files_max=files_max, stopped=self._stop.is_set)
        if entries:
            self._summary.add_compaction(entries)
            self._listener.compacted(sum(len(entry.removed) for entry in entries))
