"""A lake, a broker and Spark's jobs in memory, each of whose calls can fail before or after it did its work.

A run of the archive is a row of steps. `Steps` counts them and raises at the one it was told: once (an error, Ctrl-C),
or from there on (the process was killed, the lake is away), so that no handler gets anything done any more.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace

from penstock.client.raw import Retirement, TopicInfo, TopicPartition
from penstock.services.archive import vouched
from penstock.spark.pipelines.archive.entries import Mark
from penstock.spark.pipelines.archive.errors import CorruptFileError, LakeError
from penstock.spark.pipelines.archive.job import FoundFile, Written
from penstock.spark.pipelines.archive.lake import Stored
from penstock.spark.pipelines.archive.planning import Plan
from penstock.spark.pipelines.archive.standing import Log
from penstock.spark.planning import Range
from penstock.storage.epochs import EpochHistory

TOPIC = "orders"
TOPIC_ID = "4b961ac9-4c45-1c84-0d84-bdfda6a1a2a4"
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
        with self.steps.step(f"create {path}"):
            if path in self.files:
                raise FileExistsError(path)
            self._put(path, content)

    def replace(self, path: str, content: bytes) -> None:
        with self.steps.step(f"replace {path}"):
            self._put(path, content)

    def _put(self, path: str, content: bytes) -> None:
        self.files[path] = content
        self.synced.add(path)

    def sync(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self.steps.step(f"sync {path}"):
                self.synced.add(path)

    def move(self, source: str, target: str) -> None:
        with self.steps.step(f"move to {target}"):
            if source not in self.files:
                if target not in self.files:
                    raise FileNotFoundError(source)
                return
            self.files[target] = self.files.pop(source)
            if source in self.synced:
                self.synced.add(target)

    def delete(self, path: str) -> None:
        # One after the other: a folder may be half gone.
        for at in self._below(path):
            with self.steps.step(f"delete {at}"):
                self.files.pop(at, None)

    def _below(self, path: str) -> Paths:
        return [at for at in self.files if not path or at == path or at.startswith(f"{path}/")]

    def cut_power(self) -> None:
        self.files = {path: content for path, content in self.files.items() if path in self.synced}

    def rows(self, path: str) -> Rows:
        if path not in self.files:
            raise CorruptFileError(path, "is missing")
        return [(partition, offset, value) for partition, offset, value in json.loads(self.files[path])]


def _first_epoch() -> EpochHistory:
    history = EpochHistory()
    history.assign(3, 0)
    return history


@dataclass
class Broker:
    """A topic whose retention deletes what it is told to be archived, as soon as it is told."""

    steps: Steps
    rows: Rows = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    bootstrap: str = "b:1"
    histories: dict[int, EpochHistory] = field(default_factory=lambda: defaultdict(_first_epoch))
    # A log from before there were epochs.
    knows_epochs: bool = True
    told: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    # What happens to it once a round is planned, or read.
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)

    def pass_by(self, moment: str) -> None:
        self.meanwhile.pop(moment, lambda: None)()

    def find(self) -> tuple[dict[str, TopicInfo], list[str]]:
        info = TopicInfo(TOPIC, None, tuple(self.ends()), False)
        return {TOPIC: info}, []

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        with self.steps.step("ids"):
            return dict.fromkeys(names, "-")

    def logs(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, Log]:
        with self.steps.step("logs"):
            return {
                TopicPartition(TOPIC, at): Log(self.starts.get(at, 0), end) for at, end in self.ends().items()
            }

    def ends(self) -> dict[int, int]:
        empty = dict.fromkeys(range(2), 0)
        return empty | {partition: offset + 1 for partition, offset, _ in sorted(self.rows)}

    def lose_end(self, partition: int, end: int, regrown: int, epoch: int) -> None:
        """A replica is elected that has nothing behind `end`; then other records are written, up to `regrown`."""
        self.rows = [row for row in self.rows if row[0] != partition or row[1] < end]
        self.histories[partition].truncate_from(end)
        self._led_anew(partition, end)
        self.grow(partition, regrown, epoch)

    def grow(self, partition: int, end: int, epoch: int) -> None:
        start = self.ends()[partition]
        if end > start:
            # An epoch is known from its first record on.
            self.histories[partition].assign(epoch, start)
        added = range(start, end)
        self.rows += [(partition, offset, f"{partition}/{offset} of {epoch}") for offset in added]

    def replica(self, partition: int) -> tuple[Rows, EpochHistory]:
        """As the log is now, for an election later on."""
        return [row for row in self.rows if row[0] == partition], deepcopy(self.histories[partition])

    def elect(self, partition: int, replica: tuple[Rows, EpochHistory]) -> None:
        """One that was away, and may have what the others do not have, and not what they have."""
        rows, history = replica
        common = sum(row in rows for row in self.rows if row[0] == partition)
        self.rows = [row for row in self.rows if row[0] != partition] + rows
        self.histories[partition] = deepcopy(history)
        self._led_anew(partition, common)

    def _led_anew(self, partition: int, common: int) -> None:
        """A replica has deleted of its own log what it could vouch for, and lowers the progress before it leads."""
        self.starts[partition] = min(self.starts.get(partition, 0), common)
        if partition in self.told:
            self.told[partition] = (min(self.told[partition][0], common), None)

    def record_bytes(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        return {}

    def epochs(self, ranges: Iterable[Range]) -> dict[TopicPartition, tuple[Mark, ...]]:
        self.pass_by("planned")
        with self.steps.step("epochs"):
            return {part.at: self._marks(part) for part in ranges} if self.knows_epochs else {}

    def _marks(self, part: Range) -> tuple[Mark, ...]:
        history, position, found = self.histories[part.at.partition], part.start, []
        while position < part.end:
            epoch, end = history.end_of(history.epoch_at(position), part.end)
            if end <= position:
                break  # the log lost it since it was planned
            found.append((epoch, min(end, part.end)))
            position = end
        return tuple(found)

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        with self.steps.step("epoch ends"):
            ends = self.ends()
            return {
                at: self.histories[at.partition].end_of(epoch, ends[at.partition])
                for at, epoch in wanted.items()
            }

    def progress(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        return {TopicPartition(TOPIC, at): offset for at, (offset, _) in self.told.items()}

    def serves(self, at: TopicPartition, offset: int) -> bool:
        return False

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
        return {}

    def tell(
        self, archived: Mapping[str, tuple[str, Mapping[int, int]]], epochs: Mapping[TopicPartition, int]
    ) -> list[str]:
        self.told = {
            at: (next_offset, epochs.get(TopicPartition(TOPIC, at)))
            for _, offsets in archived.values()
            for at, next_offset in offsets.items()
        }
        with self.steps.step("tell"):
            for at, (offset, epoch) in self.told.items():
                start = self.starts.get(at, 0)
                log = SimpleNamespace(
                    start_offset=start, end_offset=self.ends()[at], epochs=self.histories[at]
                )
                self.starts[at] = max(start, vouched(log, offset, epoch))  # type: ignore[arg-type]
        return []

    def kept(self) -> Rows:
        return [row for row in self.rows if row[1] >= self.starts.get(row[0], 0)]


class Jobs:
    """In the place of Spark's: a file has its rows as JSON."""

    def __init__(self, lake: MemoryLake, broker: Broker) -> None:
        self._lake = lake
        self._broker = broker

    def write_round(self, _: object, __: object, staging: str, plan: Plan, **___: object) -> Written:
        kept, count = self._broker.kept(), 0
        for at, start, end in plan.ranges:
            rows = [row for row in kept if row[0] == at.partition and start <= row[1] < end]
            self._write(f"{staging}/topic={TOPIC}/date=2026-11-16/hour=1{at.partition}/p.parquet", rows)
            count += len(rows)
        self._broker.pass_by("read")
        return Written(count, count)

    def _write(self, path: str, rows: Rows) -> None:
        with self._lake.steps.step(f"write {path}"):
            self._lake.files[path] = json.dumps(rows).encode()

    def read_back(self, _: object, __: object, staging: str, written: Written) -> list[FoundFile]:
        found = []
        for stored in self._lake.list(staging):
            rows = self._lake.rows(stored.path)
            offsets: dict[int, tuple[int, int]] = {}
            for partition, offset, _value in sorted(rows):
                offsets[partition] = (offsets.get(partition, (offset, 0))[0], offset)
            found.append(FoundFile(stored.path.removeprefix(f"{staging}/"), len(rows), offsets))
        assert sum(file.rows for file in found) == written.rows
        return found

    def compacted(self, _: object, __: object, group: object, staging: str, ___: object) -> int:
        files = group.files  # type: ignore[attr-defined]
        rows = [row for file in files for row in self._lake.rows(file.path)]
        self._write(f"{staging}/{group.folder}/p.parquet", rows)  # type: ignore[attr-defined]
        return 0
