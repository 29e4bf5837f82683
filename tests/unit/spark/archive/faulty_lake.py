"""A lake in memory, each of whose calls can fail before, within or after it did its work.

A run of the archive is a row of steps. `Steps` counts them and raises at the one it was told: once (an error, Ctrl-C),
or from there on (the process was killed, the lake is away), so that no handler gets anything done any more.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.spark.pipelines.archive.errors import CorruptFileError, LakeError
from penstock.spark.pipelines.archive.lake import Stored

# Partition, offset, and what was written there.
Row = tuple[int, int, str]
Rows = list[Row]
Paths = list[str]


class KilledError(BaseException):
    """The process is no more: nothing handles this, and nothing works any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    error: Callable[[], BaseException]
    # From this step on, so that handlers fail as well; else so many more times, at the steps that come next.
    for_good: bool = False
    again: int = 0
    # Files that nobody synced are gone afterwards.
    power_cut: bool = False


FAULTS = {
    "error": Fault(lambda: LakeError("503 Slow Down")),
    "two errors": Fault(lambda: LakeError("503 Slow Down"), again=1),
    "the lake is away": Fault(lambda: LakeError("connection refused"), for_good=True),
    "Ctrl-C": Fault(KeyboardInterrupt),
    "Ctrl-C twice": Fault(KeyboardInterrupt, again=1),
    "killed": Fault(KilledError, for_good=True),
    "power cut": Fault(KilledError, for_good=True, power_cut=True),
}


@dataclass
class Steps:
    fault: Fault | None = None
    at: int = -1
    names: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._pass(f"before {name}")
        yield
        self._pass(f"after {name}")

    def within(self, name: str) -> None:
        """Half of it is done: a name is there, and in no folder that is synced."""
        self._pass(f"within {name}")

    def _pass(self, name: str) -> None:
        self.names.append(name)
        if self.fault is None:
            return
        late = len(self.names) - 1 - self.at
        if late >= 0 and (self.fault.for_good or late <= self.fault.again):
            raise self.fault.error()


class MemoryLake:
    """The files outlive the processes; `steps` is of the process that is at work."""

    uri = "memory:lake"

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.files: dict[str, bytes] = {}
        self.synced: set[str] = set()
        # Where files came from whose new names are not synced.
        self.moved: dict[str, str] = {}
        # What deletions took away whose folder is not synced.
        self.deleted: dict[str, bytes] = {}
        # Folders, and whether their names are synced; those that Spark makes are synced with the files in them.
        self.folders: dict[str, bool] = {}

    def url(self, path: str = "") -> str:
        return f"{self.uri}/{path}"

    def list(self, path: str) -> list[Stored]:
        with self.steps.step(f"list {path}"):
            return [Stored(at, len(self.files[at])) for at in sorted(self._below(path))]

    def read(self, path: str) -> bytes:
        with self.steps.step(f"read {path}"):
            if path not in self.files:
                raise FileNotFoundError(path)
            return self.files[path]

    def create(self, path: str, content: bytes) -> None:
        name = f"create {path}"
        with self.steps.step(name):
            self._make(name, path)
            # In one step, as a link.
            if path in self.files:
                raise FileExistsError(path)
            self._put(name, path, content)

    def replace(self, path: str, content: bytes) -> None:
        name = f"replace {path}"
        with self.steps.step(name):
            self._make(name, path)
            self._put(name, path, content)

    def _put(self, name: str, path: str, content: bytes) -> None:
        self.files[path] = content
        self.steps.within(name)
        self._sync(path)

    def sync(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self.steps.step(f"sync {path}"):
                if path not in self.files:
                    raise FileNotFoundError(path)
                self._sync(path)
                # With all names in the folders above.
                synced = {"", *_above(path)}
                self.folders |= {
                    folder: True for folder in self.folders if folder.rpartition("/")[0] in synced
                }

    def _make(self, name: str, path: str) -> None:
        """As `FolderLake`: whoever makes a folder syncs its name."""
        for folder in _above(path):
            if folder not in self.folders:
                self.folders[folder] = False
                self.steps.within(name)
                self.folders[folder] = True

    def _sync(self, path: str) -> None:
        self.synced.add(path)
        self.moved.pop(path, None)
        self._sync_folder(_folder(path))

    def sync_removed(self, paths: Iterable[str]) -> None:
        for folder in dict.fromkeys(map(_folder, paths)):
            with self.steps.step(f"sync what was removed from {folder}"):
                self._sync_folder(folder)

    def _sync_folder(self, folder: str) -> None:
        self.deleted = {at: content for at, content in self.deleted.items() if _folder(at) != folder}

    def move(self, source: str, target: str) -> None:
        with self.steps.step(f"move to {target}"):
            self._make(f"move to {target}", target)
            if source in self.files:
                self.files[target] = self.files.pop(source)
                if source in self.synced:
                    self.moved[target] = source
                self.steps.within(f"move to {target}")
            elif target not in self.files:
                raise FileNotFoundError(source)
            if target in self.moved:
                self._sync(target)

    def delete(self, path: str) -> None:
        # One after the other: a folder may be half gone.
        for at in self._below(path):
            with self.steps.step(f"delete {at}"):
                if at in self.files:
                    self._unlink(at)

    def _unlink(self, path: str) -> None:
        content = self.files.pop(path)
        name = self.moved.pop(path, path)
        if name in self.synced:
            self.deleted[name] = content

    def prune(self, path: str) -> None:
        """Folders count only for what a power cut takes."""

    def _below(self, path: str) -> Paths:
        return [at for at in self.files if not path or at == path or at.startswith(f"{path}/")]

    def cut_power(self) -> None:
        for target, source in self.moved.items():
            if target in self.files:
                self.files[source] = self.files.pop(target)
        self.moved.clear()
        self.files = self.deleted | self.files
        self.deleted = {}
        self.files = {
            path: content
            for path, content in self.files.items()
            if path in self.synced and all(self.folders.get(folder, True) for folder in _above(path))
        }
        self.folders = {folder: True for folder, synced in self.folders.items() if synced}

    def rows(self, path: str) -> Rows:
        if path not in self.files:
            raise CorruptFileError(path, "is missing")
        return [(partition, offset, value) for partition, offset, value in json.loads(self.files[path])]


def _above(path: str) -> Paths:
    """The folders on the way to a file, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
