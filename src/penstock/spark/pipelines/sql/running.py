"""One query, from its text to its last batch."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.client.raw import RawClient, RawOptions, TopicInfo
from penstock.spark.pipelines.progress import QueryProgress
from penstock.spark.pipelines.sql.explain import explained
from penstock.spark.pipelines.sql.memory import CheckpointLocation, forget
from penstock.spark.pipelines.sql.settings import EVERY_MS, MALFORMED_METRIC, SqlSettings, parse_settings
from penstock.spark.pipelines.status import StatusFile
from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.pipelines.sql.targets import Screen

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# A wrong address should be told quickly, before Spark is started.
BROKER_TIMEOUT_MS = 5_000
POLL_SECONDS = 0.2
STATUS_SECONDS = 5.0
NAME_CHARACTERS = 80


@dataclass(slots=True)
class Summary:
    """What a query has done since it was started; `malformed` per topic."""

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    malformed: dict[str, int] = field(default_factory=dict)
    checkpoint: str | None = None
    schemas: dict[str, str] = field(default_factory=dict)  # inferred, as --schema takes them

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def sql(
    query: str,
    *,
    bootstrap: str = DEFAULT_BOOTSTRAP,
    spark: "SparkSession | None" = None,
    master: str = "local[*]",
    to: str = "console",
    value: "Iterable[str] | Mapping[str, str] | str | None" = None,
    schema: "Iterable[str] | Mapping[str, str] | str | None" = None,
    watermark: "Iterable[str] | Mapping[str, str] | str | None" = None,
    start: str = "earliest",
    once: bool = False,
    every_ms: int = EVERY_MS,
    checkpoint: str | None = None,
    mode: str | None = None,
    malformed: str = "skip",
    options: Mapping[str, str] | None = None,
    screen: "Screen | None" = None,
) -> Summary:
    """Run a streaming query over topics until it ends: with `once`, at what is there now; else by an interrupt.

    The options are those of `penstock pipeline sql`. Without `spark`, a session is started on `master`.
    """
    asked = parse_settings(
        query,
        to=to,
        value=value,
        schema=schema,
        watermark=watermark,
        start=start,
        once=once,
        every_ms=every_ms,
        checkpoint=checkpoint,
        mode=mode,
        malformed=malformed,
        options=options,
    )
    check_broker(bootstrap)
    from penstock.spark.pipelines.sql.starting import start_sql  # noqa: PLC0415 - needs PySpark

    started = start_sql(spark or sql_session(master), asked, bootstrap=bootstrap, screen=screen)
    try:
        return started.wait()
    finally:
        started.close()


def sql_session(master: str, config: Mapping[str, str] | None = None) -> "SparkSession":
    local = {}
    if master.startswith("local"):
        # Each of Spark's 200 would be a state store with files of its own, on one machine.
        local["spark.sql.shuffle.partitions"] = "4"
    return session("penstock sql", master=master, config=local | dict(config or {}))


def check_broker(bootstrap: str) -> dict[str, TopicInfo]:
    """Its topics; an error that names the address when nobody answers."""
    options = RawOptions(api_timeout_ms=BROKER_TIMEOUT_MS, connect_timeout_ms=BROKER_TIMEOUT_MS)
    with RawClient(bootstrap, options) as client:
        return client.topics()


class RunningSql:
    """A started query: its progress goes to a status file and to whoever waits for it."""

    def __init__(
        self,
        query: "StreamingQuery",
        asked: SqlSettings,
        place: CheckpointLocation,
        bootstrap: str,
        topics: list[str],
        inferred: dict[str, str],
        stop: threading.Event | None = None,
    ) -> None:
        """`stop`, when it is set, ends `wait`; for signal handlers."""
        self.query = query
        self.summary = Summary(checkpoint=None if place.temporary else place.uri, schemas=inferred)
        self._asked = asked
        self._place = place
        self._started_s = time.monotonic()
        self._progress = QueryProgress(query)
        self._stop = stop or threading.Event()
        name = " ".join(asked.query.split())[:NAME_CHARACTERS]
        self._status = StatusFile("sql", name, bootstrap=bootstrap, topics=topics)
        self._status.__enter__()

    def wait(self, on_progress: Callable[[Summary], None] | None = None) -> Summary:
        """Until the query ends, or `stop` is called from elsewhere; an error of the query is raised."""
        told_s = 0.0
        while True:
            # Looked at before the progress is, so that the progress of the last batch is not missed.
            active = self.query.isActive and not self._stop.is_set()
            rows = self._read_progress()
            now = time.monotonic()
            if rows or now - told_s >= STATUS_SECONDS:
                told_s = now
                self._tell_status(rows)
                if on_progress is not None:
                    on_progress(self.summary)
            if not active:
                break
            self._stop.wait(POLL_SECONDS)
        self._raise_failure()
        return self.summary

    def stop(self) -> None:
        """From any thread: `wait` returns."""
        self._stop.set()

    def close(self) -> None:
        """Stop the query, and remove what it needs no more."""
        self._stop.set()
        if self.query.isActive:
            self.query.stop()
        self._read_progress()
        self._status.__exit__(None, None, None)
        forget(self._place)

    def _raise_failure(self) -> None:
        error = None if self._stop.is_set() else self.query.exception()
        if error is not None:
            raise explained(error, self._asked.query, mode=self._asked.mode)

    def _read_progress(self) -> int:
        rows = 0
        self.summary.seconds = time.monotonic() - self._started_s
        for batch in self._progress.new_batches():
            self.summary.batches += 1
            rows += batch["numInputRows"]
            self._count_malformed(batch.get("observedMetrics") or {})
        self.summary.rows += rows
        return rows

    def _count_malformed(self, metrics: Mapping[str, Any]) -> None:
        for name, row in metrics.items():
            topic = name.removeprefix(MALFORMED_METRIC)
            if topic != name and row["malformed"]:
                known = self.summary.malformed.get(topic, 0)
                self.summary.malformed[topic] = known + row["malformed"]

    def _tell_status(self, rows: int) -> None:
        self._status.update(offsets=self._progress.offsets(), rows=rows)
