"""The broker, as the archive sees it: which topics there are, what they hold, and who waits for the archive."""

import logging
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from penstock.client.admin import Admin
from penstock.client.errors import ClientError
from penstock.client.raw import EARLIEST, LATEST, RawClient, RawError, RawOptions, TopicInfo, TopicPartition
from penstock.core.archive_progress import ArchiveProgress
from penstock.records.batch import read_header
from penstock.spark.pipelines.archive.entries import NO_ID
from penstock.spark.pipelines.archive.errors import ArchiveError
from penstock.spark.pipelines.archive.manifest import Mark
from penstock.spark.pipelines.archive.planning import Log, Standing, parting

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

    def close(self) -> None:
        self._client.close()
        self._sampler.close()

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

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """As they are now; topics that are gone are left out."""
        there = self._client.topics()
        return {name: id_of(there[name]) for name in names if name in there}

    def logs(self, topics: Iterable[TopicInfo]) -> dict[TopicPartition, Log]:
        partitions = [TopicPartition(info.name, number) for info in topics for number in info.partitions]
        if not partitions:
            return {}
        earliest = self._client.offsets(dict.fromkeys(partitions, EARLIEST))
        # Up to the last stable offset: records of a transaction that may still be aborted wait.
        latest = self._client.offsets(dict.fromkeys(partitions, LATEST), committed=True)
        return {
            at: Log(earliest[at].offset, max(earliest[at].offset, latest[at].offset)) for at in partitions
        }

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

    def epochs(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The leader epochs of the records right before these ends; left out where there is none to tell."""
        found = {}
        for at, end in ends.items():
            for fetched in self._sampler.fetch(at, end - 1, end, committed=False):
                header = read_header(fetched.records, 0)
                if header.base_offset < end <= header.next_offset and header.leader_epoch >= 0:
                    found[at] = header.leader_epoch
                break
        return found

    def standing(
        self,
        logs: Mapping[TopicPartition, Log],
        archived: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, Sequence[Mark]],
    ) -> Standing:
        last = {at: of[-1][0] for at, of in marks.items() if at in logs and of}
        parted = {}
        for at, answer in self._client.epoch_ends(last).items():
            where = parting(marks[at], *answer)
            if where is not None:
                parted[at] = where
        late = {at: start for at, start in archived.items() if at in logs and start < logs[at].earliest}
        return Standing(parted, {at for at, start in late.items() if self._client.serves(at, start)})

    def tell(
        self,
        archived: Mapping[str, tuple[str, Mapping[int, int]]],
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> list[str]:
        """Let retention go on for topics that wait for their archive; returns what went wrong, in words.

        Whatever goes wrong, nothing is lost: the broker keeps what it does not know to be archived.
        """
        troubles = []
        for topic, (topic_id, next_offsets) in archived.items():
            if topic_id == NO_ID or not next_offsets:
                continue
            of_topic = {at: (epochs or {}).get(TopicPartition(topic, at)) for at in next_offsets}
            known = {at: epoch for at, epoch in of_topic.items() if epoch is not None}
            progress = str(ArchiveProgress(uuid.UUID(topic_id).bytes, dict(next_offsets), known))
            try:
                admin = self._admin = self._admin or Admin(self.bootstrap)
                configs = admin.describe(topic).configs or {}
                if configs.get(REQUIRED) == "true" and configs.get(PROGRESS) != progress:
                    admin.alter_configs(topic, {PROGRESS: progress})
            except ClientError as error:
                troubles.append(f"the broker does not know yet how far {topic} is archived: {error}")
        return troubles


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
