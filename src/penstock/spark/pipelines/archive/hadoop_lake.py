"""A lake anywhere that Spark's Hadoop reaches: hdfs:, s3a: and whatever the session has jars for.

What can be promised is what the file system promises. HDFS renames atomically and never over another file, so its
manifest is as safe as a folder's. S3 knows no rename, but a write that S3 itself refuses where the name is taken (S3A
of Hadoop 3.4.2 and later): with it, entries are as safe there. Where S3A is older or was told to do without
(`fs.s3a.create.conditional.enabled`), or where the store takes no notice of `If-None-Match`, there is only a look
before the write: an archiver that sleeps in between past its lock writes over the entry of its successor, and every
later run ends with the name of a file that is missing.

A copy that S3 ends after its archiver lost the lock, and after another one compacted the file away, leaves a file that
the manifest does not name: only plain Parquet readers see its rows again.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.archive.errors import LakeError
from penstock.spark.pipelines.archive.failures import spark_errors
from penstock.spark.pipelines.archive.lake import Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# S3A's name for a file that comes to be when it is closed, and only if there is none.
_CONDITIONAL = "fs.option.create.conditional.overwrite"
# Whoever is at work removes folders while others list them; that one goes away at each try is no accident.
_LIST_TRIES = 5


class HadoopLake:
    def __init__(self, uri: str, spark: "SparkSession") -> None:
        self._uri = uri.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        with spark_errors(uri):
            top = self._path("")
            self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
            self._fs: Any = top.getFileSystem(self._configuration)
            # Says now, and not after a round of work, that nothing answers there.
            self._fs.exists(top)
            self._top = str(self._fs.makeQualified(top).toString()).rstrip("/")

    @property
    def uri(self) -> str:
        return self._uri

    def url(self, path: str = "") -> str:
        return f"{self._uri}/{path}" if path else self._uri

    def list(self, path: str) -> list[Stored]:
        for _ in range(_LIST_TRIES - 1):
            with suppress(FileNotFoundError):
                return sorted(self._found(path))
        return sorted(self._found(path))

    def _found(self, path: str) -> Iterable[Stored]:
        """FileNotFoundError when a folder goes away in the middle of it: then the rest of the listing is missing."""
        found = []
        with self._errors(path):
            top = self._path(path)
            if not self._fs.exists(top):
                return []
            files = self._fs.listFiles(top, True)
            while files.hasNext():
                status = files.next()
                where = str(status.getPath().toString())
                found.append(Stored(where.removeprefix(self._top).lstrip("/"), int(status.getLen())))
        return found

    def read(self, path: str) -> bytes:
        with self._errors(path):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, path: str, content: bytes) -> None:
        with self._errors(path):
            final = self._path(path)
            if self._fs.hasPathCapability(final, _CONDITIONAL):
                self._create_at_close(final, content)
                return
        part = self._write_part(path, content)
        with self._errors(path):
            try:
                if self._fs.exists(final) or not self._fs.rename(part, final):
                    raise FileExistsError(path)
            finally:
                self._fs.delete(part, False)

    def _create_at_close(self, path: Any, content: bytes) -> None:
        if self._fs.exists(path):  # there are stores that do not know the condition, and write over it
            raise FileExistsError(path)
        stream = self._fs.createFile(path).must(_CONDITIONAL, "true").build()
        try:
            stream.write(bytearray(content))
        except BaseException:
            stream.abort()  # closed, it would be there as far as it got
            raise
        try:
            stream.close()
        except Exception as error:
            if _java_class(error).endswith(".RemoteFileChangedException"):
                raise FileExistsError(path) from error
            raise

    def replace(self, path: str, content: bytes) -> None:
        """Nobody sees it half-written, or missing in between."""
        if self._fs.getScheme() == "s3a":
            # An object appears whole when it is closed, in the place of the one before; a rename would be a copy.
            with self._errors(path):
                self._write(self._path(path), content, overwrite=True)
            return
        part = self._write_part(path, content)
        with self._errors(path):
            self._rename_over(part, self._path(path))

    def _rename_over(self, old: Any, new: Any) -> None:
        """Only a file context renames over a file that is there; on HDFS in one step."""
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(old.toUri(), self._configuration)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        context.rename(self._qualified(old), self._qualified(new), options)

    def _write_part(self, path: str, content: bytes) -> Any:
        folder, _, name = path.rpartition("/")
        part = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}")
        with self._errors(path):
            self._write(part, content, overwrite=False)
        return part

    def _write(self, path: Any, content: bytes, *, overwrite: bool) -> None:
        stream = self._fs.create(path, overwrite)
        try:
            stream.write(bytearray(content))
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()

    def sync(self, paths: Iterable[str]) -> None:
        """A closed file is as durable as HDFS or S3 make it; there is nothing to ask for afterwards."""

    def move(self, source: str, target: str) -> None:
        """Whoever sleeps between any two steps of this takes away nothing that another one has moved meanwhile."""
        with suppress(FileNotFoundError), self._errors(target):
            old, new = self._path(source), self._path(target)
            if self._fs.exists(old):
                self._fs.mkdirs(new.getParent())
                self._move(old, new)
        with self._errors(target):
            if not self._fs.exists(new):
                raise FileNotFoundError(source)

    def _move(self, old: Any, new: Any) -> None:
        if self._fs.getScheme() != "s3a":
            self._rename_over(old, new)
            return
        # S3 copies, whole, and deletes then: whoever is killed or asleep in between leaves both. The id of a round is
        # in the names of its files, so what is there under a name is what is to be moved, and nothing has to go.
        if not self._fs.exists(new):
            self._fs.rename(old, new)
        elif self._is_same(old, new):
            self._fs.delete(old, False)
        else:
            # Of a version that gave names by number alone, with a manifest that was restored.
            raise LakeError(
                f"{new} is in the way of {old}, and of a round that the manifest does not know: keep it elsewhere, "
                "and run the same command again"
            )

    def _is_same(self, old: Any, new: Any) -> bool:
        """FileNotFoundError where another one has moved it since."""
        if self._fs.getFileStatus(old).getLen() != self._fs.getFileStatus(new).getLen():
            return False
        with ExitStack() as closing:
            streams = [self._fs.open(path) for path in (old, new)]
            for stream in streams:
                closing.callback(stream.close)
            return bool(self._jvm.org.apache.commons.io.IOUtils.contentEquals(*streams))

    def delete(self, path: str) -> None:
        with self._errors(path):
            self._fs.delete(self._path(path), True)

    def sync_removed(self, paths: Iterable[str]) -> None:
        """HDFS and S3 have forgotten a file for good when they answer."""

    def prune(self, path: str) -> None:
        with suppress(FileNotFoundError), self._errors(path):
            self._prune(self._path(path))

    def _prune(self, folder: Any) -> None:
        inside = list(self._fs.listStatus(folder))
        for status in inside:
            if status.isDirectory():
                self._prune(status.getPath())
        if not list(self._fs.listStatus(folder)):
            with suppress(Exception):  # it has got a file since: Hadoop refuses, as it should
                self._fs.delete(folder, False)

    def _qualified(self, path: Any) -> Any:
        return self._fs.makeQualified(path)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        with spark_errors(self._uri):
            try:
                yield
            except Exception as error:
                name = _java_class(error)
                if name == "java.io.FileNotFoundException":
                    raise FileNotFoundError(path) from error
                if name.endswith("FileAlreadyExistsException"):
                    raise FileExistsError(path) from error
                raise


def _java_class(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return "" if java is None else str(java.getClass().getName())
