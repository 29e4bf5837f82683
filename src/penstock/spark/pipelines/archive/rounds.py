"""One round: plan, write to staging, commit, move, tell the broker."""

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.client.raw import TopicPartition
from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive.committing import commit, lost_error, now_text, recover, staged
from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry, Mark
from penstock.spark.pipelines.archive.errors import (
    ConflictError,
    CorruptFileError,
    GapError,
    HoleInLogError,
)
from penstock.spark.pipelines.archive.failures import HoleFoundError, ReadLostError
from penstock.spark.pipelines.archive.job import FoundFile, check_ranges, read_back, write_round
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.losses import loss_entry, missing_files
from penstock.spark.pipelines.archive.manifest import STAGING, Manifest
from penstock.spark.pipelines.archive.planning import (
    Bounds,
    Plan,
    gaps_and_starts,
    noted_as_lost,
    plan,
    worth_a_look,
)
from penstock.spark.pipelines.archive.presence import Presence
from penstock.spark.pipelines.archive.source import Source, id_of
from penstock.spark.pipelines.archive.survey import Survey
from penstock.spark.pipelines.archive.telling import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Retention may run between the plan and the reading; that it does so three times in a row is no accident.
_LOST_TRIES = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """How to archive, whatever is archived."""

    compression: str = "zstd"
    bounds: Bounds = field(default_factory=Bounds)
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class RoundDone:
    """What a round did."""

    entry: Entry
    plan: Plan
    payload_bytes: int
    seconds: float

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.entry.added)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.entry.added)


class Rounds:
    """The rounds of one run over one lake, which it owns."""

    def __init__(
        self,
        session: "SparkSession",
        lake: Lake,
        source: Source,
        settings: Settings,
        *,
        still_owner: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:
        self.session = session
        self.settings = settings
        self.still_owner = still_owner
        self.warn = warn
        self._lake = lake
        self._source = source
        self._warned: set[str] = set()
        self._holed: set[TopicPartition] = set()  # a task found records missing in their logs
        # Whether the broker knows how far everything is archived.
        self.told = False
        self.manifest = Manifest.load(lake)
        self.survey = Survey(source, self.manifest, self._warn_once)
        self._presence = Presence(self.manifest, still_owner)

    def recover(self) -> None:
        """Finish what was committed, remove what was not."""
        report = None if self.settings.fail_on_data_loss else self._warn_once
        try:
            recover(self.manifest, report=report, still_owner=self.still_owner)
        except CorruptFileError:
            # Retention goes by what it was told while the file was there.
            with suppress(PenstockError):
                self.tell()
            raise
        if self.manifest.missing and not self.settings.fail_on_data_loss:
            self._give_up()

    def _give_up(self) -> None:
        """Note as lost what is neither in the lake nor at the broker: nothing is worth waiting for it."""
        heard = self._source.hear_all({file.topic for file in missing_files(self.manifest)})
        found, _ = self._source.find()
        ids = {name: id_of(info) for name, info in found.items()}
        entry = loss_entry(self.manifest, ids, self.survey.logs(found, self.survey.held(ids)), heard)
        if entry is None:
            return
        self.still_owner()
        self.manifest.commit(entry)
        for file in entry.given_up:
            self.warn(
                f"{file.path} is noted as lost, with {file.rows} rows: the broker has none of them any more"
            )
        self.manifest.tidy()

    def ends(self) -> dict[TopicPartition, int]:
        """Where the topics end now, for a run that ends there."""
        return {at: log.latest for at, log in self.survey.logs(self.survey.found(), {}).items()}

    def run(self, until: Mapping[TopicPartition, int] | None = None) -> RoundDone | None:
        """One round, or None when there is nothing to archive."""
        tries = 0
        while True:
            started = time.monotonic()
            planned = self.plan(until)
            if not planned:
                return None
            try:
                return self._run(planned, started)
            except HoleFoundError as error:
                tries += self._is_found_again(error)
                if tries == _LOST_TRIES:
                    raise
            except ReadLostError:
                tries += 1
                if tries == _LOST_TRIES:
                    raise

    def _is_found_again(self, hole: HoleFoundError) -> bool:
        """One that is new is looked for by the next plan, however many partitions have one.

        It may have been there for a moment only: another one leads, or the topic is compacted from now on. Two plans
        that find it in a row are enough.
        """
        if self.settings.fail_on_data_loss and hole.at in self._holed:
            raise HoleInLogError(str(hole))
        known = hole.at in self._holed
        self._holed.add(hole.at)
        return known

    def plan(self, until: Mapping[TopicPartition, int] | None = None) -> Plan:
        found = self.survey.found()
        ids = {name: id_of(info) for name, info in found.items()}
        held = self.survey.held(ids)
        archived = {at: of.line.end for at, of in held.items()}
        logs = self.survey.logs(found, held)
        leaders = self._source.leaders(logs)
        stands = self.survey.standing(logs, held)
        _, _, starts = gaps_and_starts(logs, archived, stands)
        bounds = self.settings.bounds
        sizes = self._source.record_bytes(worth_a_look(logs, starts, bounds))
        made = plan(logs, archived, ids, record_bytes=sizes, bounds=bounds, until=until, standing=stands)
        if not self.settings.fail_on_data_loss:
            made = made.with_holes(self._source.holes(part for part in made.ranges if part.at in self._holed))
        self._judge(made)
        concerned = {part.at for part in made.ranges} | {parting.at for parting in made.parted}
        return replace(made, leaders={at: epoch for at, epoch in leaders.items() if at in concerned})

    def _judge(self, made: Plan) -> None:
        if made.gaps and self.settings.fail_on_data_loss:
            raise GapError("; ".join(map(str, made.gaps)))
        for line in noted_as_lost(made.gaps):
            self._warn_once(line)
        for parted in made.parted:
            self._warn_once(str(parted))

    def _run(self, planned: Plan, started: float) -> RoundDone:
        number = self.manifest.number + 1
        name = f"{number:010}-{uuid.uuid4().hex}"
        staging = f"{STAGING}/{name}"
        payload_bytes, added = 0, []
        epochs = self._epochs(planned)
        with staged(self._lake, staging):
            if planned.ranges:
                written = write_round(
                    self.session,
                    self._lake,
                    staging,
                    planned,
                    epochs=epochs,
                    bootstrap=self._source.bootstrap,
                    kafka=self._source.kafka,
                    compression=self.settings.compression,
                )
                files = read_back(self.session, self._lake, staging, written)
                check_ranges(planned, files)
                self._check_ids(planned)
                if self._holed and self._source.leaders(planned.leaders) != planned.leaders:
                    # What is noted as lost is what the one that was read has not.
                    raise ReadLostError("a partition got another leader while it was archived")
                payload_bytes = written.payload_bytes
                added = archived_files(self._lake, staging, files, planned.ids)
            self._check_standing(planned)
            taken = planned.topics(epochs, self._source.cluster)
            entry = Entry(number, "round", name, now_text(), taken, tuple(added))
            self._lake.sync(file.staged for file in added if file.staged is not None)
            self.still_owner()
        commit(self.manifest, entry)
        self.survey.own |= {part.at for part in planned.ranges}
        return RoundDone(entry, planned, payload_bytes, time.monotonic() - started)

    def _epochs(self, planned: Plan) -> dict[TopicPartition, tuple[Mark, ...]]:
        """Of what will be read; tasks take records of no others.

        All of a round is found out of one leader, so what is archived before and what is read is one line of records.
        """
        epochs = self._source.epochs(planned.ranges)
        if self._source.leaders(planned.leaders) != planned.leaders:
            raise ReadLostError("a partition got another leader before it was archived")
        return epochs

    def _check_ids(self, planned: Plan) -> None:
        """Ids are never used twice: the same one before and after means the same topic all the time in between."""
        topics = dict.fromkeys(part.at.topic for part in planned.ranges)
        now = self._source.ids(topics)
        for topic in topics:
            if now.get(topic) != planned.ids[topic]:
                raise ReadLostError(f"topic {topic} was deleted while it was archived")

    def _check_standing(self, planned: Plan) -> None:
        """What is archived of the logs that are read, or gone back to, stands to them as it did when it was planned."""
        before = {parting.at: (parting.start, parting.branch) for parting in planned.parted}
        concerned = {part.at for part in planned.ranges} | before.keys()
        held = {at: of for at, of in self.survey.held(planned.ids).items() if at in concerned}
        topics = {at.topic for at in concerned}
        found = {name: info for name, info in self._source.find()[0].items() if name in topics}
        if gone := sorted(topics - found.keys()):
            raise ReadLostError(f"topic {', '.join(gone)} was deleted while it was archived")
        stands = self.survey.standing(self.survey.logs(found, held), held)
        now = {at: (start, stands.branches.get(at)) for at, start in stands.parted.items()}
        if now != before:
            raise ReadLostError("a log lost its end while it was archived")

    def ids(self) -> dict[str, str]:
        return {name: id_of(info) for name, info in self._source.find()[0].items()}

    def positions(self) -> dict[str, dict[int, int]]:
        """Up to where each topic that is at the broker is archived."""
        archives = [self.manifest.topic(name, topic_id) for name, topic_id in self.ids().items()]
        return {archive.topic: archive.next_offsets for archive in archives if archive is not None}

    def tell(self) -> None:
        """Let the broker know how far its topics are archived; again after a crash, since it may not have heard.

        No further than files are there; that one is missing is an error once retention was told.
        """
        self.told = tell(
            self._source, self.manifest, self.survey, self._presence, self.still_owner, self._warn_once
        )
        for file in missing_files(self.manifest):
            error = lost_error(self._lake, file)
            if self.settings.fail_on_data_loss:
                self.still_owner()
                raise error
            self._warn_once(f"{error.known}; going on without its {file.rows} rows")

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            self.warn(line)


def archived_files(
    lake: Lake, staging: str, files: list[FoundFile], ids: Mapping[str, str]
) -> list[ArchivedFile]:
    """Staged files under the names that they get.

    The round's random id makes them unlike any other: numbers come again when a manifest is restored, and a move that
    finds the name taken would have to tell whose file that is.
    """
    name = staging.rpartition("/")[2]
    sizes = {stored.path: stored.size_bytes for stored in lake.list(staging)}
    added = []
    for index, file in enumerate(files):
        folder, _, _ = file.path.rpartition("/")
        topic = folder.partition("/")[0].removeprefix("topic=")
        staged = f"{staging}/{file.path}"
        if staged not in sizes:  # removed by one who has taken over
            raise ConflictError(lake.uri)
        added.append(
            ArchivedFile(
                path=f"{folder}/{name}-{index:04}.parquet",
                topic=topic,
                topic_id=ids[topic],
                rows=file.rows,
                size_bytes=sizes[staged],
                offsets=file.offsets,
                staged=staged,
            )
        )
    return added
