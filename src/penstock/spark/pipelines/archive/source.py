"""The broker, as the archive sees it: which topics there are, what they hold, and who waits for the archive."""

import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from penstock.client.admin.admin import Admin
from penstock.client.errors import ClientError
from penstock.client.raw import (
    EARLIEST,
    LATEST,
    Heard,
    OffsetOutOfRangeError,
    RawClient,
    RawError,
    RawOptions,
    Retirement,
    TopicInfo,
    TopicPartition,
)
from penstock.core.archive_progress import ArchiveProgress
from penstock.records.batch import read_header
from penstock.spark.cluster import firsts, uncompacted
from penstock.spark.holes import Span, Walk
from penstock.spark.pipelines.archive.entries import NO_ID, Mark
from penstock.spark.pipelines.archive.errors import ArchiveError
from penstock.spark.pipelines.archive.failures import BrokerLostError, ReadLostError
from penstock.spark.pipelines.archive.lake_id import LAKE_FILE
from penstock.spark.pipelines.archive.standing import Log
from penstock.spark.planning import Range

REQUIRED = "penstock.archive.required"
PROGRESS = "penstock.archive.progress"
# Enough records to know their size, few enough to ask for before every large round.
SAMPLE_BYTES = 65_536

_log = logging.getLogger(__name__)


class Source:
    """One cluster and the topics of it that are archived; a context manager."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        pattern: str | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._names = tuple(dict.fromkeys(topics))
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ArchiveError(f"--pattern {pattern!r} is no regular expression: {error}") from error
        for name in self._names:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
                raise ArchiveError(
                    f"--topic {name!r} is no name of a topic; for many topics use --pattern REGEX"
                )
        self.kafka = dict(kafka or {})
        options = RawOptions.from_kafka(self.kafka)
        self._client = RawClient(bootstrap, options)
        self._sampler = RawClient(bootstrap, replace(options, fetch_bytes=SAMPLE_BYTES))
        self._admin: Admin | None = None
        self._lake = ""
        self._takes_over = False
        self._waited_for: set[bytes] = set()  # ids of topics whose retention was seen to wait for this lake

    def archive_to(self, lake: str, *, take_over: bool = False) -> None:
        """The id of the lake; `take_over`: retention waits for it, whichever it has waited for.

        Taken over once: where another lake takes it back, that is meant.
        """
        self._lake = lake
        self._takes_over = take_over
        self._waited_for.clear()

    def close(self) -> None:
        self._client.close()
        self._sampler.close()

    @property
    def cluster(self) -> str:
        """Its id; empty where it has told none yet."""
        return self._client.cluster or ""

    def find(self) -> tuple[dict[str, TopicInfo], list[str]]:
        """The topics that are there, and those that were asked for by name and are not."""
        there = self._client.topics()
        found = {name: there[name] for name in self._names if name in there}
        if self._pattern is not None:
            # As Kafka's consumers have it: a pattern matches the whole name, and never an internal topic.
            found |= {
                name: info
                for name, info in sorted(there.items())
                if not info.internal and self._pattern.fullmatch(name)
            }
        return found, [name for name in self._names if name not in there]

    def hear_all(self, names: Iterable[str]) -> Heard:
        """What every broker says of topics: that one knows none of a name may only mean that it was cut off."""
        return self._client.hear_all(names)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """As they are now; topics that are gone are left out."""
        there = self._client.topics()
        return {name: id_of(there[name]) for name in names if name in there}

    def logs(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, Log]:
        """Those that have a leader now: one without holds up no other."""
        partitions = [TopicPartition(info.name, number) for info in topics for number in info.partitions]
        if not partitions:
            return {}
        earliest = self._client.offsets(dict.fromkeys(partitions, EARLIEST), partial=True)
        # Up to the last stable offset: records of a transaction that may still be aborted wait.
        latest = self._client.offsets(dict.fromkeys(earliest, LATEST), committed=True, partial=True)
        starts = {at: earliest[at].offset for at in latest}
        first = firsts(self._client, starts)
        return {at: Log(starts[at], max(starts[at], latest[at].offset), first.get(at, 0)) for at in starts}

    def holes(self, ranges: Iterable[Range]) -> dict[TopicPartition, list[Span]]:
        """Offsets that logs have no batch for, where nothing compacts them: all of a range is read for it."""
        wanted = list(ranges)
        whole = uncompacted(self._client, {part.at.topic for part in wanted})
        found: dict[TopicPartition, list[Span]] = {}
        for part in wanted:
            if part.at.topic in whole:
                walk = Walk(part)
                answers = self._client.fetch(part.at, part.start, part.end, committed=True)
                holes = [hole for fetched in answers for hole in walk.over(fetched.records)]
                found[part.at] = [*holes, *walk.rest()]
        return {at: holes for at, holes in found.items() if holes}

    def record_bytes(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """About how many bytes an offset takes at the broker, by a look at the first batches to be read."""
        sizes = {}
        for at, start in starts.items():
            try:
                with closing(self._sampler.fetch(at, start, start + 1, committed=True)) as answers:  # type: ignore[type-var]
                    first = next(iter(answers), None)
            except RawError as error:
                _log.debug("no sample of %s: %s", at, error)
                continue
            if first is not None and len(first.records):
                sizes[at] = len(first.records) / _offsets_in(first.records)
        return sizes

    def expect(self, info: TopicInfo, epochs: Mapping[int, int]) -> None:
        """Nobody is asked of these partitions any more who leads them in a lower epoch: he was replaced."""
        if info.topic_id is not None:
            for client in (self._client, self._sampler):
                client.expect(info.topic_id, epochs)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The epochs of the leaders that answer."""
        return {at: self._client.leader_epoch(at) for at in partitions}

    def epochs(self, ranges: Iterable[Range]) -> dict[TopicPartition, tuple[Mark, ...]]:
        """The leader epochs of what is in these ranges, each with its end; left out where there is none to tell."""
        found = {part.at: self._epochs_of(part) for part in ranges}
        return {at: marks for at, marks in found.items() if marks}

    def _epochs_of(self, part: Range) -> tuple[Mark, ...]:
        marks: list[Mark] = []
        position = part.start
        while position < part.end:
            epoch = self._epoch_at(part.at, position, part.end)
            if epoch is None:
                break
            found, end = self._client.epoch_ends({part.at: epoch})[part.at]
            if found != epoch or end <= position:
                # Without its epochs a range would never be looked at again.
                raise ReadLostError(f"{part.at} got another leader before it was archived")
            marks.append((epoch, min(end, part.end)))
            position = end
        return tuple(marks)

    def _epoch_at(self, at: TopicPartition, offset: int, end: int) -> int | None:
        """Of the first record from this offset on."""
        try:
            with closing(self._sampler.fetch(at, offset, end, committed=False)) as answers:  # type: ignore[type-var]
                first = next(iter(answers), None)
        except OffsetOutOfRangeError as error:
            raise ReadLostError(str(error)) from error
        if first is None or not len(first.records):
            return None
        header = read_header(first.records, 0)
        return header.leader_epoch if header.leader_epoch >= 0 and header.base_offset < end else None

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return self._client.epoch_ends(wanted)

    def serves(self, at: TopicPartition, offset: int) -> bool:
        return self._client.serves(at, offset)

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
        return self._client.retirements(wanted)

    def progress(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """How far the broker believes topics to be archived that wait for it."""
        ids = self.ids(topics)
        found: dict[TopicPartition, int] = {}
        for topic, topic_id in ids.items():
            try:
                configs = self._configs(topic) if topic_id != NO_ID else {}
            except ClientError as error:
                raise BrokerLostError(
                    f"the broker does not say how far {topic} is archived: {error}"
                ) from error
            stored = ArchiveProgress.parse(configs.get(PROGRESS, ""))
            if stored is None or not stored.may_be_of(self._lake):
                continue
            if configs.get(REQUIRED) == "true" and stored.topic_id == uuid.UUID(topic_id).bytes:
                found |= {TopicPartition(topic, at): offset for at, offset in stored.next_offsets.items()}
        return found

    def _configs(self, topic: str) -> Mapping[str, str]:
        self._admin = self._admin or Admin(self.bootstrap)
        return self._admin.describe(topic).configs or {}

    def tell(
        self,
        archived: Mapping[str, tuple[str, Mapping[int, int]]],
        epochs: Mapping[TopicPartition, int] | None = None,
        unled: Collection[TopicPartition] = (),
        still_owner: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Let retention go on for topics that wait for their archive; returns what went wrong, in words.

        `unled`: nobody can say now what is true of these; for them what the broker has been told stays.
        `still_owner`: asked right before each word. One who slept since he looked may know of less than is missing
        now, and another has told the broker so.
        Whatever goes wrong, nothing is lost: the broker keeps what it does not know to be archived.
        """
        troubles = []
        for topic, (topic_id, next_offsets) in archived.items():
            if topic_id == NO_ID or not next_offsets:
                continue
            of_topic = {at: (epochs or {}).get(TopicPartition(topic, at)) for at in next_offsets}
            known = {at: epoch for at, epoch in of_topic.items() if epoch is not None}
            made = ArchiveProgress(uuid.UUID(topic_id).bytes, dict(next_offsets), known, self._lake)
            try:
                left = [at.partition for at in unled if at.topic == topic]
                trouble = self._tell(topic, made, left, still_owner)
                troubles += [trouble] if trouble else []
            except ClientError as error:
                troubles.append(f"the broker does not know yet how far {topic} is archived: {error}")
        return troubles

    def _tell(
        self, topic: str, made: ArchiveProgress, unled: Collection[int], still_owner: Callable[[], None]
    ) -> str:
        configs = self._configs(topic)
        if configs.get(REQUIRED) != "true":
            return ""
        assert self._admin is not None
        stored = ArchiveProgress.parse(configs.get(PROGRESS, ""))
        if stored is not None and stored.topic_id == made.topic_id and not stored.may_be_of(self._lake):
            if not self._takes_over or made.topic_id in self._waited_for:
                return (
                    f"retention of {topic} waits for the lake {stored.lake} (the id in its {LAKE_FILE}), not for this "
                    "one: --take-over lets it wait for this one from now on"
                )
            still_owner()
            self._admin.alter_configs(topic, {PROGRESS: ""})
        progress = str(made.with_others(stored, unled))
        if configs.get(PROGRESS) != progress:
            still_owner()
            self._admin.alter_configs(topic, {PROGRESS: progress})
        self._waited_for.add(made.topic_id)
        return ""


def id_of(info: TopicInfo) -> str:
    return NO_ID if info.topic_id is None else str(info.topic_id)


def _offsets_in(records: memoryview) -> int:
    position, first, behind = 0, None, 0
    while position < len(records):
        header = read_header(records, position)
        first = header.base_offset if first is None else first
        behind = header.next_offset
        position += header.size_bytes
    return max(1, behind - (first or 0))
