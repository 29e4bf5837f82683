"""Whether all brokers have the same: every replica is read below the high watermark, and held against the others.

Followers are asked as well as leaders, with the replica id that Kafka keeps for this (-2, a reader that debugs). What
was committed when we began is compared; a log may grow, and lose its beginning to retention, meanwhile.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.client.admin.cluster_info import BrokerInfo, ClusterInfo
from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.link import Address, Link
from penstock.client.raw.model import EARLIEST, LATEST
from penstock.client.raw.offsets import list_offsets
from penstock.client.raw.options import RawOptions
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.diagnosis.replica_compare import (
    Content,
    DamagedError,
    Difference,
    compare,
    contents,
    first_other,
)
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.fetch import TOPIC_IDS_SINCE
from penstock.wire.kafka.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

DEBUGGING_READER: Final = -2
_FETCH_BYTES: Final = 2 * 1024 * 1024
_OPTIONS = RawOptions(
    connect_timeout_ms=3_000, request_timeout_ms=30_000, api_timeout_ms=30_000, fetch_bytes=_FETCH_BYTES
)
# How long a replica may be behind before we go on without it.
_LAG_SECONDS = 10.0
_LAG_PAUSE_SECONDS = 0.1
_TOPIC_RESOURCE = 2
_POLICY = "cleanup.policy"
_DAMAGED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE)

# Told how many more bytes were compared.
Told = Callable[[int], None]


@dataclass(slots=True)
class Verdict:
    """What was found of one partition."""

    place: TopicPartition
    start: int = 0
    end: int = 0
    size_bytes: int = 0
    compared: tuple[int, ...] = ()  # brokers whose copies were read to the end
    # Those of them that are in sync and lack nothing in between: whatever was acknowledged is there. Of compacted
    # topics none is proven to be.
    whole: tuple[int, ...] = ()
    differences: list[Difference] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)  # brokers that could not be asked, and why
    is_compacted: bool = False

    @property
    def is_identical(self) -> bool:
        return not self.differences and not self.unread


class Verifier:
    """Blocking, for one thread."""

    def __init__(self, bootstrap: str, options: RawOptions = _OPTIONS) -> None:
        self._cluster = Cluster(bootstrap, options)
        self._with_gaps: set[int] = set()  # brokers whose copies of the partition at hand have some

    def close(self) -> None:
        self._cluster.close()

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Those of these topics whose logs every broker compacts for itself."""
        budget = self._cluster.budget("asking for the topics' settings")
        resources = [
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[_POLICY]
            )
            for name in topics
        ]
        while True:
            try:
                link = self._cluster.any_link(budget)
                version = link.version(ApiKey.DESCRIBE_CONFIGS)
                answer = link.call(
                    ApiKey.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources=resources)
                )
            except RawError as error:
                budget.pause(error)
                continue
            return {
                result.resource_name
                for result in answer.results
                for entry in result.configs
                if entry.name == _POLICY and "compact" in (entry.value or "")
            }

    def verify(self, found: ClusterInfo, place: TopicPartition, told: Told, *, compacted: bool) -> Verdict:
        """Compare all replicas of a partition; those that are still on their way are left out."""
        replicas = found.partitions[place]
        verdict = Verdict(place, is_compacted=compacted)
        if replicas.is_offline:
            verdict.unread = dict.fromkeys(replicas.replicas, "nobody leads the partition")
            return verdict
        self._with_gaps.clear()
        at = TopicPartition(*place)
        verdict.start, verdict.end = self._offset(at, EARLIEST), self._offset(at, LATEST)
        copies: dict[int, _Copy] = {}
        # The leader's copy is what the others are held against.
        for broker in sorted(replicas.replicas, key=lambda replica: replica != replicas.leader):
            if broker in replicas.adding and broker not in replicas.in_sync:
                continue
            if found.brokers[broker].is_live:
                copies[broker] = self._copy(found.brokers[broker], at)
            else:
                verdict.unread[broker] = "it is dead"
        (self._compare_records if compacted else self._compare_bytes)(verdict, copies, told)
        verdict.compared = tuple(sorted(copies))
        # Where every broker compacts for itself, files that went look as if they were compacted away.
        proven = set() if compacted else set(replicas.in_sync) - self._with_gaps
        verdict.whole = tuple(broker for broker in verdict.compared if broker in proven)
        return verdict

    def _copy(self, broker: BrokerInfo, at: TopicPartition) -> "_Copy":
        return _Copy(self._cluster, broker.id, (broker.host, broker.port), at)

    def _offset(self, at: TopicPartition, which: int) -> int:
        return list_offsets(self._cluster, {at: which}, committed=False)[at].offset

    def _compare_bytes(self, verdict: Verdict, copies: "dict[int, _Copy]", told: Told) -> None:
        position = verdict.start
        while position < verdict.end and copies:
            position = self._fill(verdict, copies, position)
            views = {broker: copy_.view for broker, copy_ in copies.items()}
            if position >= verdict.end or not views:
                return
            found = compare(views, position, verdict.end)
            self._note(verdict, copies, found.differences)
            if found.has_gap:
                self._with_gaps.update(copies)
            position = found.next_offset
            for copy in copies.values():
                copy.drop()  # what is left of an answer may begin with a part of a batch
            verdict.size_bytes += found.size_bytes
            told(found.size_bytes)

    def _compare_records(self, verdict: Verdict, copies: "dict[int, _Copy]", told: Told) -> None:
        position = verdict.start
        read: dict[int, dict[int, Content]] = {}
        reached: dict[int, int] = {}
        while position < verdict.end and copies:
            behind = {b: copy_ for b, copy_ in copies.items() if reached.get(b, position) <= position}
            for copy in behind.values():
                copy.drop()
            asked = list(behind)
            position = self._fill(verdict, behind, position)
            for broker in asked:
                if broker not in behind:
                    del copies[broker]
            told(max((len(copy.view) for copy in behind.values()), default=0))
            for broker, copy in behind.items():
                try:
                    taken = contents(copy.view, position, verdict.end)
                except DamagedError as error:
                    damaged = Difference(broker, error.offset, str(error), is_damaged=True)
                    self._note(verdict, copies, [damaged])
                    continue
                read[broker] = read.get(broker, {}) | taken.records
                reached[broker] = max(taken.next_offset, position)
            if not copies:
                return
            reference, *others = copies
            limit = min(reached[broker] for broker in copies)
            for broker in others:
                offset = first_other(read[reference], read[broker], limit)
                if offset is not None:
                    why = f"the record is not what broker {reference} has"
                    self._note(verdict, copies, [Difference(broker, offset, why)])
            for broker in copies:
                read[broker] = {
                    offset: content for offset, content in read[broker].items() if offset >= limit
                }
            position = limit

    @staticmethod
    def _note(verdict: Verdict, copies: "dict[int, _Copy]", differences: Iterable[Difference]) -> None:
        for difference in differences:
            if difference not in verdict.differences:
                verdict.differences.append(difference)
            copies.pop(difference.broker, None)

    def _fill(self, verdict: Verdict, copies: "dict[int, _Copy]", position: int) -> int:
        """Have something of every copy; returns where that begins, later than asked for where retention was at work."""
        deadline = time.monotonic() + _LAG_SECONDS
        while empty := [copy_ for copy_ in copies.values() if copy_.is_wanting]:
            for copy in empty:
                copy.ask(position)
            behind = False
            for copy in empty:
                try:
                    copy.take(verdict.end)
                    behind |= copy.is_wanting
                except _OutOfRangeError:
                    start = self._offset(copy.at, EARLIEST)
                    if start > position:
                        for each in copies.values():
                            each.drop()
                        return self._fill(verdict, copies, start) if start < verdict.end else verdict.end
                    behind = True
                except _UnreadableError as error:
                    damaged = Difference(copy.broker, position, str(error), is_damaged=True)
                    self._note(verdict, copies, [damaged])
                except RawError as error:
                    verdict.unread[copy.broker] = str(error)
                    copies.pop(copy.broker)
            if behind and time.monotonic() > deadline:
                for copy in [each for each in copies.values() if each.is_wanting]:
                    verdict.unread[copy.broker] = f"it has nothing at offset {position} yet"
                    copies.pop(copy.broker)
            elif behind:
                time.sleep(_LAG_PAUSE_SECONDS)
        return position


class _OutOfRangeError(Exception):
    """There is no such offset in this copy."""


class _UnreadableError(Exception):
    """The broker cannot read its own copy."""


class _Copy:
    """One broker's replica: what of it was read and not compared yet."""

    def __init__(self, cluster: Cluster, broker: int, address: Address, at: TopicPartition) -> None:
        self._cluster = cluster
        self.broker = broker
        self._address = address
        self.at = at
        self.view = memoryview(b"")
        self._has_no_more = False
        self._asked: tuple[Link, int] | None = None
        self._trouble: RawError | None = None

    @property
    def is_wanting(self) -> bool:
        """Whether it has to be read, or read again since the broker is behind."""
        return not len(self.view) and not self._has_no_more

    def ask(self, position: int) -> None:
        """Send the request; what goes wrong is told when the answer is taken."""
        partition = FetchPartition(
            partition=self.at.partition, fetch_offset=position, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            replica_id=DEBUGGING_READER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=self.at.topic, partitions=[partition])],
        )
        self._trouble, self._has_no_more = None, False
        try:
            link = self._cluster.link(self._address, self._cluster.budget(f"broker {self.broker}"))
            version = link.version(ApiKey.FETCH, at_most=TOPIC_IDS_SINCE - 1)
            self._asked = link, link.send(ApiKey.FETCH, version, request)
        except RawError as error:
            self._trouble = error

    def take(self, end: int) -> None:
        """Wait for the answer."""
        if self._asked is None:
            raise self._trouble or ConnectionLostError("not asked")
        link, ticket = self._asked
        self._asked = None
        answer = link.response(ticket)
        if answer.error_code:
            raise BrokerError(answer.error_code, f"broker {self.broker}")
        data: PartitionData = answer.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _OutOfRangeError
        if data.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
            return  # a follower that has not heard yet how much of it is committed
        if data.error_code in _DAMAGED:
            raise _UnreadableError("the broker cannot read it")
        if data.error_code:
            raise BrokerError(data.error_code, f"broker {self.broker}")
        self.view = memoryview(data.records or b"")
        # Compaction may have left nothing; a plain log that has nothing where others have is not the same.
        self._has_no_more = not len(self.view) and data.high_watermark >= end

    def drop(self) -> None:
        """Forget what was read and what was asked for."""
        self.view, self._has_no_more = memoryview(b""), False
        if self._asked is not None:
            link, ticket = self._asked
            self._asked = None
            link.forget(ticket)
