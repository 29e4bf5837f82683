"""Which query a checkpoint belongs to, and the columns it began with: `penstock.json` beside Spark's own files.

Spark continues whatever a checkpoint holds: another query would go on with offsets and state that mean nothing to
it. Columns that were inferred stay as they were, since the state of a query depends on their types.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.sql.explain import explained
from penstock.spark.pipelines.sql.settings import SqlError, SqlSettings, SqlUseError, TargetKind
from penstock.spark.pipelines.status import state_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "penstock.json"
# Spark writes the first of these when a query has planned its first batch.
_OFFSETS = "offsets"
_SINK_LOG = "_spark_metadata"
_ARCHIVE = "_penstock"


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """Where a query keeps its checkpoint; a temporary one is removed when it ends."""

    uri: str
    temporary: bool = False


def checkpoint_location(settings: SqlSettings, bootstrap: str, master: str) -> CheckpointLocation:
    """As given; else one per query and target, so that a second run continues where the first ended.

    The screen forgets: a query to the console begins anew each time, unless it has a checkpoint of its own.
    """
    if settings.checkpoint:
        return CheckpointLocation(settings.checkpoint.rstrip("/"))
    if not master.startswith("local"):
        raise SqlUseError(
            f"a query on {master} needs --checkpoint with a place that all its machines reach, such as hdfs: or s3a:"
        )
    if settings.target.kind is TargetKind.CONSOLE:
        return CheckpointLocation(tempfile.mkdtemp(prefix="penstock-sql-"), temporary=True)
    named = json.dumps([settings.identity(), bootstrap], sort_keys=True)
    digest = hashlib.sha256(named.encode()).hexdigest()[:20]
    return CheckpointLocation(str(state_dir() / "checkpoints" / f"sql-{digest}"))


def forget(place: CheckpointLocation) -> None:
    if place.temporary:
        shutil.rmtree(place.uri, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Memory:
    identity: Mapping[str, Any]
    schemas: Mapping[str, str] = field(default_factory=dict)  # per topic, Spark's JSON for a schema


class Checkpoint:
    """A folder of any file system that Spark knows."""

    def __init__(self, spark: "SparkSession", uri: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self.uri = uri

    def recall(self, settings: SqlSettings) -> Memory | None:
        """What the query was the last time; None when nothing has run here. SqlError: it was another query."""
        try:
            if not self._exists(self.uri, _OFFSETS):
                return None
            if not self._exists(self.uri, _FILE):
                raise SqlError(f"{self.uri} is the checkpoint of another program: give another --checkpoint")
            tree = json.loads(self._read(_FILE))
        except ValueError:
            raise SqlError(f"{self.uri}/{_FILE} is damaged: give another --checkpoint") from None
        except Exception as error:
            raise self._failed(error) from None
        remembered, wanted = tree["identity"], json.loads(json.dumps(settings.identity()))
        for name in wanted:
            if remembered.get(name) != wanted[name]:
                raise SqlError(
                    f"the checkpoint {self.uri} belongs to another {name} ({_text(remembered.get(name))}): "
                    "give another --checkpoint, or remove it to start anew"
                )
        return Memory(remembered, tree["schemas"])

    def remember(self, memory: Memory) -> None:
        text = json.dumps({"identity": dict(memory.identity), "schemas": dict(memory.schemas)}, indent=1)
        try:
            self._write(_FILE, text)
        except Exception as error:
            raise self._failed(error) from None

    def check_lake(self, uri: str) -> None:
        """For a query that begins: a lake that another one has filled would swallow its first batches.

        Spark's file sink tells batches by their number, and takes those it has seen for repeats.
        """
        try:
            filled, archive = self._exists(uri, _SINK_LOG), self._exists(uri, _ARCHIVE)
        except Exception as error:
            raise self._failed(error, uri) from None
        if filled:
            raise SqlError(
                f"{uri} holds the rows of a query with another checkpoint: give that --checkpoint, or another folder"
            )
        if archive:
            raise SqlError(f"{uri} is an archive of topics: give another folder")

    def _failed(self, error: Exception, uri: str | None = None) -> SqlError:
        if isinstance(error, SqlError):
            return error
        java = getattr(error, "java_exception", None)  # py4j's, for what PySpark has no class for
        said = explained(error) if java is None else str(java.toString()).splitlines()[0]
        return SqlError(f"cannot use {uri or self.uri}: {said}")

    def _exists(self, *parts: str) -> bool:
        path = self._path(*parts)
        return bool(path.getFileSystem(self._configuration).exists(path))

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join(parts))

    def _read(self, name: str) -> str:
        path = self._path(self.uri, name)
        stream = path.getFileSystem(self._configuration).open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _write(self, name: str, text: str) -> None:
        path = self._path(self.uri, name)
        stream = path.getFileSystem(self._configuration).create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
