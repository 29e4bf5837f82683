"""S3 in memory, as Hadoop shows it: a rename copies and then deletes, and whoever does it may stop in between.

A conditional write is one step of S3 itself.
"""

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from tests.unit.spark.archive.faulty_lake import MemoryLake

from penstock.spark.pipelines.archive.hadoop_lake import HadoopLake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONDITIONAL = "fs.option.create.conditional.overwrite"


def nothing() -> None: ...


class RefusedError(Exception):
    """412, as it comes out of the JVM."""

    java_exception = MagicMock()
    java_exception.getClass().getName.return_value = "org.apache.hadoop.fs.s3a.RemoteFileChangedException"


class Upload:
    """Nothing is there before it is closed."""

    def __init__(self, fs: "S3", path: PurePosixPath) -> None:
        self._fs, self._path, self._content = fs, path, b""

    def must(self, option: str, value: str) -> "Upload":
        assert (option, value) == (CONDITIONAL, "true")
        return self

    def build(self) -> "Upload":
        self._fs.step()
        return self

    def write(self, content: bytearray) -> None:
        self._fs.step()
        self._content += bytes(content)

    def abort(self) -> None:
        self._content = b""

    def close(self) -> None:
        self._fs.step()
        if str(self._path) in self._fs.files:
            raise RefusedError
        self._fs.files[str(self._path)] = self._content
        self._fs.step()


class S3:
    """What S3A has for a move, and to create a file; a rename refuses a file that is there."""

    def __init__(self, *files: str) -> None:
        self.files: dict[str, Any] = {path: f"what was in {path}" for path in files}
        self.steps: Iterator[Callable[[], None]] = iter(())  # what happens before each call

    def step(self) -> None:
        next(self.steps, nothing)()

    def getScheme(self) -> str:  # noqa: N802 - Hadoop's names
        return "s3a"

    def hasPathCapability(self, path: PurePosixPath, name: str) -> bool:  # noqa: N802
        return name == CONDITIONAL

    def createFile(self, path: PurePosixPath) -> Upload:  # noqa: N802
        return Upload(self, path)

    def getFileStatus(self, path: PurePosixPath) -> Any:  # noqa: N802
        content = self.open(path).content
        return SimpleNamespace(getLen=lambda: len(content))

    def open(self, path: PurePosixPath) -> Any:
        self.step()
        if str(path) not in self.files:
            raise FileNotFoundError(path)
        return SimpleNamespace(content=self.files[str(path)], close=nothing)

    def exists(self, path: PurePosixPath) -> bool:
        self.step()
        return str(path) in self.files

    def mkdirs(self, path: PurePosixPath) -> None:
        self.step()

    def delete(self, path: PurePosixPath, recursive: bool) -> None:
        self.step()
        assert not recursive
        self.files.pop(str(path), None)

    def rename(self, source: PurePosixPath, target: PurePosixPath) -> bool:
        self.step()
        if str(target) in self.files:
            return False
        if str(source) not in self.files:
            raise FileNotFoundError(source)
        self.step()
        if str(source) not in self.files:
            raise FileNotFoundError(source)
        self.files[str(target)] = self.files[str(source)]  # by S3 itself, which shows it whole
        self.step()
        self.files.pop(str(source), None)
        return True


class Path3(PurePosixPath):
    def getParent(self) -> PurePosixPath:  # noqa: N802 - Hadoop's name
        return self.parent


class LakeOnS3(HadoopLake):
    def __init__(self, fs: S3) -> None:
        self._uri, self._fs, self._jvm = "s3a://bucket/lake", fs, MagicMock()
        self._jvm.org.apache.commons.io.IOUtils.contentEquals = lambda left, right: (
            left.content == right.content
        )

    def _path(self, path: str) -> Path3:
        return Path3(path)


def s3_lake(*files: str) -> LakeOnS3:
    return LakeOnS3(S3(*files))


class MemoryLakeOnS3(MemoryLake):
    """It creates and moves as `HadoopLake` does, each call of Hadoop a step."""

    def create(self, path: str, content: bytes) -> None:
        name = f"create {path}"
        with self.steps.step(name):
            self._hadoop(name).create(path, content)
            self.synced.add(path)

    def move(self, source: str, target: str) -> None:
        name = f"move to {target}"
        with self.steps.step(name):
            self._hadoop(name).move(source, target)
            self.synced.add(target)

    def _hadoop(self, name: str) -> LakeOnS3:
        steps, hadoop = self.steps, s3_lake()
        hadoop._fs.files, hadoop._fs.step = self.files, lambda: steps.within(name)
        return hadoop
