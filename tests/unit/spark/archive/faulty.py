"""A broker and Spark's jobs in memory, beside the lake of `faulty_lake`, whose steps they share."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.unit.spark.archive.faulty_lake import MemoryLake, Rows, Steps

from penstock.client.raw import Heard, Retirement, TopicInfo, TopicPartition
from penstock.core.archive_progress import ArchiveProgress
from penstock.services.maintenance.archive_progress import _claim, vouched
from penstock.spark.pipelines.archive.entries import Mark, Span
from penstock.spark.pipelines.archive.errors import LakeError
from penstock.spark.pipelines.archive.failures import BrokerLostError, HoleFoundError, ReadLostError
from penstock.spark.pipelines.archive.job import FoundFile, Written
from penstock.spark.pipelines.archive.lines import add
from penstock.spark.pipelines.archive.planning import Gap, Plan
from penstock.spark.pipelines.archive.standing import Log
from penstock.spark.planning import Range
from penstock.storage.epochs import EpochHistory
from penstock.storage.log import Log as StoredLog

TOPIC = "orders"
TOPIC_ID = "4b961ac9-4c45-1c84-0d84-bdfda6a1a2a4"


def _first_epoch() -> EpochHistory:
    history = EpochHistory()
    history.assign(3, 0)
    return history


@dataclass
class Replica:
    """Its log, of which it has deleted what lies below its start; what was there is still known here."""

    rows: Rows
    history: EpochHistory
    start: int
    # Offsets behind its start that it has no records for: somebody took files from its middle.
    gone: frozenset[int] = frozenset()


@dataclass
class Broker:
    """A topic whose retention deletes what it is told to be archived, as soon as it is told."""

    steps: Steps
    rows: Rows = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    bootstrap: str = "b:1"
    # With what is deleted.
    histories: dict[int, EpochHistory] = field(default_factory=lambda: defaultdict(_first_epoch))
    leading: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: 3))
    # A log from before there were epochs.
    knows_epochs: bool = True
    told: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    # What happens to it once a round is planned, while its epochs are asked for, while it is read, or then.
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    # Partitions without a leader.
    unled: set[int] = field(default_factory=set)
    # Partitions that are being retired: where they end for readers.
    limits: dict[int, int] = field(default_factory=dict)
    gone: dict[int, frozenset[int]] = field(default_factory=dict)
    # Whether retention waits for the archive; else nobody at the broker notes how far it is.
    is_required: bool = True
    # Whether any broker knows the topic, and whether one of them does not answer.
    is_there: bool = True
    is_cut_off: bool = False
    # Its id; empty where it tells none.
    cluster: str = "here"
    # Whether records are too young to be deleted, whatever is archived.
    keeps_all: bool = False

    def pass_by(self, moment: str) -> None:
        self.meanwhile.pop(moment, lambda: None)()

    def find(self) -> tuple[dict[str, TopicInfo], list[str]]:
        return ({TOPIC: self.everywhere()}, []) if self.is_there else ({}, [TOPIC])

    def hear_all(self, names: Iterable[str]) -> Heard:
        with self.steps.step("hear all"):
            found = [self.everywhere()] if self.is_there and TOPIC in names else []
            return Heard({TOPIC: tuple(found)}, by_all=not self.is_cut_off, cluster=self.cluster or None)

    def everywhere(self) -> TopicInfo:
        """As all but one broker know it."""
        return TopicInfo(TOPIC, None, tuple(self.ends()), False)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        with self.steps.step("ids"):
            return dict.fromkeys(names, "-")

    def expect(self, _: TopicInfo, epochs: Mapping[int, int]) -> None:
        """The client finds nobody to ask who leads in so late an epoch."""
        if any(self.leading[at] < epoch for at, epoch in epochs.items()):
            raise BrokerLostError("gave up: UNKNOWN_LEADER_EPOCH")

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.leading[at.partition] for at in partitions}

    def logs(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, Log]:
        with self.steps.step("logs"):
            return {
                TopicPartition(TOPIC, at): Log(self.starts.get(at, 0), end)
                for info in topics
                for at, end in self.ends().items()
                if at in info.partitions and at not in self.unled
            }

    def ends(self) -> dict[int, int]:
        empty = dict.fromkeys(range(2), 0)
        return empty | {partition: offset + 1 for partition, offset, _ in sorted(self.rows)}

    def lose_end(self, partition: int, end: int, regrown: int, epoch: int) -> None:
        """A replica is elected that has nothing behind `end`; then other records are written, up to `regrown`."""
        rows, history = self.replica(partition).rows, deepcopy(self.histories[partition])
        history.truncate_from(end)
        start = min(self.starts.get(partition, 0), end)
        gone = frozenset(offset for offset in self.gone.get(partition, ()) if offset < end)
        self.elect(partition, Replica([row for row in rows if row[1] < end], history, start, gone), epoch)
        self.grow(partition, regrown, epoch)

    def grow(self, partition: int, end: int, epoch: int) -> None:
        start = self.ends()[partition]
        self.leading[partition] = epoch
        if end > start:
            # An epoch is known from its first record on.
            self.histories[partition].assign(epoch, start)
        added = range(start, end)
        self.rows += [(partition, offset, f"{partition}/{offset} of {epoch}") for offset in added]

    def replica(self, partition: int) -> Replica:
        """As the log is now, for an election later on."""
        rows = [row for row in self.rows if row[0] == partition]
        gone = self.gone.get(partition, frozenset())
        return Replica(rows, deepcopy(self.histories[partition]), self.starts.get(partition, 0), gone)

    def lose_middle(self, partition: int, start: int, end: int) -> None:
        """Files of the leader are gone while it was stopped; nobody knows but who reads it."""
        self.gone[partition] = self.gone.get(partition, frozenset()) | frozenset(range(start, end))

    def holes(self, ranges: Iterable[Range]) -> dict[TopicPartition, list[Span]]:
        """As `Source.holes`."""
        found: dict[TopicPartition, list[Span]] = {}
        for at, start, end in ranges:
            for offset in sorted(self.gone.get(at.partition, frozenset()) & set(range(start, end))):
                add(found.setdefault(at, []), (offset, offset + 1))
        return found

    def elect(self, partition: int, replica: Replica, epoch: int) -> None:
        """One that was away, and may have what the others do not have, and not what they have.

        Before it leads it lowers the progress; then it deletes what it finds archived.
        """
        self.rows = [row for row in self.rows if row[0] != partition] + replica.rows
        self.histories[partition] = deepcopy(replica.history)
        self.starts[partition] = replica.start
        self.gone[partition] = replica.gone
        self.leading[partition] = epoch
        if partition in self.told:
            offsets = {at: offset for at, (offset, _) in self.told.items()}
            epochs = {at: known for at, (_, known) in self.told.items() if known is not None}
            progress = ArchiveProgress(bytes(16), offsets, epochs)
            lowered = progress.lowered({partition: _claim(self.log(partition), partition, progress)})
            self.told[partition] = lowered.next_offsets[partition], lowered.epochs.get(partition)
            self._retain(partition)

    def log(self, partition: int) -> StoredLog:
        """As its leader knows it."""
        start, end = self.starts.get(partition, 0), self.ends()[partition]
        known = deepcopy(self.histories[partition])
        if start:
            known.advance_start(start)
        return SimpleNamespace(start_offset=start, end_offset=end, epochs=known)  # type: ignore[return-value]

    def _retain(self, partition: int) -> None:
        log = self.log(partition)
        if not self.keeps_all:
            self.starts[partition] = max(log.start_offset, vouched(log, *self.told[partition]))

    def age(self) -> None:
        """Records are old enough by now."""
        self.keeps_all = False
        for at in self.told:
            self._retain(at)

    def record_bytes(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        return {}

    def epochs(self, ranges: Iterable[Range]) -> dict[TopicPartition, tuple[Mark, ...]]:
        self.pass_by("planned")
        with self.steps.step("epochs"):
            return {part.at: self._marks(part) for part in ranges} if self.knows_epochs else {}

    def _marks(self, part: Range) -> tuple[Mark, ...]:
        """As `Source.epochs`: by a fetch and a question, each of whoever leads then."""
        position, marks = part.start, []
        while position < part.end:
            if position >= self.ends()[part.at.partition]:
                raise ReadLostError("out of range")
            epoch = self.histories[part.at.partition].epoch_at(position)
            self.pass_by("asking")
            found, end = self.epoch_ends({part.at: epoch})[part.at]
            if found != epoch or end <= position:
                raise ReadLostError("another leader")
            marks.append((epoch, min(end, part.end)))
            position = end
        return tuple(marks)

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        with self.steps.step("epoch ends"):
            logs = {at: self.log(at.partition) for at in wanted}
            return {at: logs[at].epochs.end_of(epoch, logs[at].end_offset) for at, epoch in wanted.items()}

    def progress(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        told = self.told if self.is_required else {}
        return {TopicPartition(TOPIC, at): offset for at, (offset, _) in told.items()}

    def serves(self, at: TopicPartition, offset: int) -> bool:
        return False

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
        return {at: Retirement(self.limits.get(at.partition), 0) for at in wanted}

    def tell(
        self,
        archived: Mapping[str, tuple[str, Mapping[int, int]]],
        epochs: Mapping[TopicPartition, int],
        unled: Collection[TopicPartition] = (),
        still_owner: Callable[[], None] = lambda: None,
    ) -> list[str]:
        if not archived:  # nothing is said of the topic, so what was said before stays
            return []
        with self.steps.step("ask what was told"):
            pass
        still_owner()
        kept = {at.partition: self.told[at.partition] for at in unled if at.partition in self.told}
        self.told = kept | {
            at: (next_offset, epochs.get(TopicPartition(TOPIC, at)))
            for _, offsets in archived.values()
            for at, next_offset in offsets.items()
        }
        with self.steps.step("tell"):
            for at in self.told.keys() - self.unled:
                self._retain(at)
        return []

    def kept(self, partition: int) -> Rows:
        start, gone = self.starts.get(partition, 0), self.gone.get(partition, frozenset())
        return [row for row in self.rows if row[0] == partition and row[1] >= start and row[1] not in gone]


class Jobs:
    """In the place of Spark's: a file has its rows as JSON."""

    def __init__(self, lake: MemoryLake, broker: Broker) -> None:
        self._lake = lake
        self._broker = broker

    def write_round(
        self,
        _: object,
        __: object,
        staging: str,
        plan: Plan,
        *,
        epochs: Mapping[TopicPartition, Sequence[Mark]],
        **___: object,
    ) -> Written:
        count = 0
        for at, start, end in plan.ranges:
            middle = (start + end) // 2
            known = [gap for gap in plan.gaps if gap.at == at]
            rows = self._read(at, start, middle, epochs.get(at, ()), known)
            self._broker.pass_by("reading")
            rows += self._read(at, middle, end, epochs.get(at, ()), known)
            self._write(f"{staging}/topic={TOPIC}/date=2026-11-16/hour=1{at.partition}/p.parquet", rows)
            count += len(rows)
        self._broker.pass_by("read")
        return Written(count, count)

    def _read(
        self, at: TopicPartition, start: int, end: int, epochs: Sequence[Mark], known: Sequence[Gap]
    ) -> Rows:
        """A task, which asks whoever leads now."""
        rows = [row for row in self._broker.kept(at.partition) if start <= row[1] < end]
        if not self._broker.starts.get(at.partition, 0) <= start <= end <= self._broker.ends()[at.partition]:
            raise ReadLostError("out of range")
        missing = set(range(start, end)) - {offset for _, offset, _value in rows}
        self._miss(at, missing - {offset for gap in known for offset in range(gap.start, gap.end)})
        for _, offset, _value in rows:
            wanted = next((epoch for epoch, behind in epochs if offset < behind), None)
            if wanted not in (None, self._broker.histories[at.partition].epoch_at(offset)):
                raise ReadLostError("a record of another leader")
        return rows

    def _miss(self, at: TopicPartition, offsets: set[int]) -> None:
        """As `RangeReader`, by the headers of batches."""
        if offsets:
            raise HoleFoundError(at, f"{at} has no records for {sorted(offsets)}")

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
        if sum(file.rows for file in found) != written.rows:
            raise LakeError("rows are missing")  # one who has taken over has removed them
        return found

    def compacted(self, _: object, __: object, group: object, staging: str, ___: object) -> int:
        files = group.files  # type: ignore[attr-defined]
        rows = [row for file in files for row in self._lake.rows(file.path)]
        self._write(f"{staging}/{group.folder}/p.parquet", rows)  # type: ignore[attr-defined]
        return 0
