"""The files of a lake, wherever it is: what the manifest, the lock and the moves need, and no more.

`FolderLake` is a folder of this machine, with everything a file system can promise (exclusive names, synced bytes);
`HadoopLake` (its own module) is anything else that Spark's Hadoop can reach. Paths are relative to the lake, with
slashes.
"""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from penstock.spark.pipelines.archive.errors import LakeError, LakeFullError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where everything lies that is not data; readers of Parquet ignore names that begin like this.
HOME = "_penstock"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What file systems say that cannot sync a folder.
_NO_SUCH_THING = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EISDIR, errno.EACCES, errno.EPERM}
)
_WILD = re.compile(r"[*?\[\]{}\\]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class Stored(NamedTuple):
    path: str
    size_bytes: int


class Lake(Protocol):
    @property
    def uri(self) -> str:
        """As the user wrote it, for messages."""

    def url(self, path: str = "") -> str:
        """For Spark."""

    def list(self, path: str) -> list[Stored]:
        """Every file below, by path; none when there is no such directory."""

    def read(self, path: str) -> bytes:
        """FileNotFoundError when it is not there."""

    def create(self, path: str, content: bytes) -> None:
        """Whole, durable, and only if there is no file of that name: FileExistsError."""

    def replace(self, path: str, content: bytes) -> None:
        """Whole and durable, whether there was one or not."""

    def sync(self, paths: Iterable[str]) -> None:
        """Files that Spark has written are durable when this returns, as far as the file system lets us see to it."""

    def move(self, source: str, target: str) -> None:
        """Nothing to do when somebody has moved it already; FileNotFoundError when it is in neither place."""

    def delete(self, path: str) -> None:
        """A file or a whole directory; nothing to do when it is gone."""

    def sync_removed(self, paths: Iterable[str]) -> None:
        """Files that were deleted do not come back, once this has returned."""

    def prune(self, path: str) -> None:
        """Remove directories that have no files below, and no file whatever comes meanwhile."""


def open_lake(uri: str, spark: "SparkSession | None" = None) -> Lake:
    """A folder needs no Spark; anything else is reached through it."""
    folder = local_folder(uri)
    if folder is not None:
        return FolderLake(folder, uri)
    if spark is None:
        raise LakeError(f"{uri} can only be reached through a Spark session: pass one")
    from penstock.spark.pipelines.archive.hadoop_lake import HadoopLake  # noqa: PLC0415 - needs py4j

    return HadoopLake(uri, spark)


def local_folder(uri: str) -> Path | None:
    """The folder that a URI means, or None when it is somewhere else; LakeError when it means nothing."""
    text = uri.strip()
    if not text:
        raise LakeError("the URI of the lake is empty: give a folder, hdfs://HOST/PATH or s3a://BUCKET/PATH")
    if _WILD.search(text):
        raise LakeError(f"{uri}: Spark takes *, ?, [], {{}} and \\ for patterns; choose a place without them")
    found = _SCHEME.match(text)
    if found is None:
        return Path(text).expanduser().absolute()
    scheme = found[1].lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise LakeError(
                f"{uri} is not a folder of this machine: write file:///FOLDER, or just the folder"
            )
        return Path(unquote(parts.path))
    if scheme in {"s3", "s3n"}:
        raise LakeError(f"{uri}: Hadoop's name for S3 is s3a; write s3a:{text.partition(':')[2]}")
    return None


class FolderLake:
    def __init__(self, folder: Path, uri: str | None = None) -> None:
        self._folder = folder
        self._uri = str(folder) if uri is None else uri

    @property
    def uri(self) -> str:
        return self._uri

    def url(self, path: str = "") -> str:
        # Not as_uri(): Hadoop takes paths as they are, and would look for a folder with %20 in its name.
        return f"file://{self._at(path)}"

    def list(self, path: str) -> list[Stored]:
        top = self._at(path)
        found = []
        with self._errors(path):
            for folder, _, names in os.walk(top, onerror=_not_there):
                for name in names:
                    file = Path(folder, name)
                    with suppress(FileNotFoundError):  # moved while we look
                        found.append(Stored(file.relative_to(self._folder).as_posix(), file.stat().st_size))
        return sorted(found)

    def read(self, path: str) -> bytes:
        with self._errors(path):
            return self._at(path).read_bytes()

    def create(self, path: str, content: bytes) -> None:
        part = self._write_part(path, content)
        try:
            with self._errors(path):
                # A link, unlike a rename, fails when the name is taken.
                os.link(part, self._at(path))
                _sync_folder(part.parent)
        finally:
            with suppress(OSError):
                part.unlink()

    def replace(self, path: str, content: bytes) -> None:
        part = self._write_part(path, content)
        with self._errors(path):
            part.replace(self._at(path))
            _sync_folder(part.parent)

    def _write_part(self, path: str, content: bytes) -> Path:
        """The content in a file beside the one meant."""
        final = self._at(path)
        part = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
        with self._errors(path):
            self._make(final.parent)
            try:
                with part.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                part.unlink(missing_ok=True)
                raise
        return part

    def sync(self, paths: Iterable[str]) -> None:
        folders: dict[Path, None] = {}
        for path in paths:
            with self._errors(path):
                file = self._at(path)
                _sync(file)
                # Spark has made the folders on the way, too, and synced none of them; nor has a run that was killed.
                above = [parent for parent in file.parents if parent.is_relative_to(self._folder)]
                folders |= dict.fromkeys([*above, self._folder.parent])
        for folder in folders:
            with self._errors(str(folder)):
                _sync_folder(folder)

    def move(self, source: str, target: str) -> None:
        with self._errors(target):
            self._make(self._at(target).parent)
            try:
                self._at(source).rename(self._at(target))
            except FileNotFoundError:
                if not self._at(target).exists():
                    raise
            _sync_folder(self._at(target).parent)

    def delete(self, path: str) -> None:
        where = self._at(path)
        with self._errors(path), suppress(FileNotFoundError):
            if where.is_dir() and not where.is_symlink():
                shutil.rmtree(where)
            else:
                where.unlink()

    def sync_removed(self, paths: Iterable[str]) -> None:
        for folder in dict.fromkeys(self._at(path).parent for path in paths):
            with self._errors(str(folder)), suppress(FileNotFoundError):
                _sync_folder(folder)

    def prune(self, path: str) -> None:
        with self._errors(path):
            for folder, _, _ in os.walk(self._at(path), topdown=False, onerror=_not_there):
                with suppress(OSError):  # it has files, or gets some now
                    os.rmdir(folder)

    def _at(self, path: str) -> Path:
        return self._folder / path

    def _make(self, folder: Path) -> None:
        """With every new name on the way to it synced."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            _sync_folder(path.parent)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in FULL:
                raise LakeFullError(self._uri, why) from error
            raise LakeError(
                f"cannot work in {self._uri}: {why} ({self._at(path)}); give a folder you may write to"
            ) from error


def _not_there(error: OSError) -> None:
    """A folder that is gone has no files; one that cannot be listed may have any: nobody may take it for empty."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in _NO_SUCH_THING:
            raise
