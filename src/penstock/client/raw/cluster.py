"""Which broker leads which partition, and the connections to the brokers.

Nothing expires: leaders are learned when first needed and learned again when a broker says that it does not lead, or
is gone. Leader epochs never go back: a broker that tells of a lower one than was heard before has not heard of what
happened since (it is cut off from the others), and another one is asked. Every method here may raise retriable errors;
trying again is for those who know what to send then, with `RetryBudget`. Topics are never made by asking for them.
"""

import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from penstock.client.addresses import BadAddressError, parse_addresses
from penstock.client.raw.errors import (
    BrokerError,
    ConnectionLostError,
    OptionError,
    RawError,
    UnknownPartitionError,
    UnknownTopicError,
)
from penstock.client.raw.link import Address, Link
from penstock.client.raw.model import Heard, TopicInfo
from penstock.client.raw.options import RawOptions
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.kafka.primitives import ZERO_UUID

# Below it the request has no way to say that a topic shall not be made.
_METADATA_VERSION_MIN = 4
# A topic made a moment ago is not known to every broker yet: believe "unknown" when it was said this often.
_UNKNOWN_TRIES = 4
# How long each of all brokers is waited for: a busy one answers within it, and a job goes on where one is frozen.
HEAR_ALL_MS = 5000
_ASKED_AT_ONCE = 16
_NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Leader(NamedTuple):
    node: int
    epoch: int


class Topic(NamedTuple):
    info: TopicInfo
    leaders: dict[int, Leader]


class Route(NamedTuple):
    """Where to ask for a partition, and how it is named there."""

    link: Link
    topic_id: uuid.UUID | None
    leader_epoch: int


class Cluster:
    def __init__(self, bootstrap: str, options: RawOptions) -> None:
        self.options = options
        try:
            self._bootstrap = parse_addresses(bootstrap)
        except BadAddressError as error:
            raise OptionError(str(error)) from error
        self._links: dict[Address, Link] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._failed: dict[Address, tuple[float, ConnectionLostError]] = {}
        # The latest leader epochs, by topic id: a topic that is made anew begins with low ones.
        self._epochs: dict[uuid.UUID, dict[int, int]] = {}
        self._told_by: Address | None = None
        self.id: str | None = None  # as whoever was asked last says
        # Who told of lower ones, the latest last.
        self._behind: dict[Address, None] = {}
        self._reconnect_pause_s = options.retry_backoff_ms / 2000

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def budget(self, what: str) -> RetryBudget:
        return RetryBudget(what, self.options)

    # -- topics -------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicInfo]:
        """Every topic there is."""
        budget = self.budget("listing the topics")
        while True:
            try:
                self._refresh(None, budget)
            except RawError as error:
                budget.pause(error)
            else:
                return {name: topic.info for name, topic in sorted(self._topics.items())}

    def describe(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """These topics as they are now; UnknownTopicError names those that are not."""
        budget = self.budget(f"describing {', '.join(sorted(names))}")
        while True:
            try:
                self.refresh(names, budget)
            except RawError as error:
                budget.pause(error)
            else:
                return {name: self._topics[name].info for name in names}

    def refresh(self, names: Collection[str], budget: RetryBudget) -> None:
        """Learn these topics anew."""
        for tried in range(1, _UNKNOWN_TRIES + 1):
            unknown = self._refresh(names, budget)
            if not unknown:
                return
            error = UnknownTopicError(unknown)
            if tried == _UNKNOWN_TRIES or budget.over:
                raise error
            budget.pause(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(unknown)))

    def hear_all(self, names: Collection[str]) -> Heard:
        """Ask every broker that answers who leads these topics: from now on the latest epochs are expected.

        All at once, over connections of their own: one that is frozen takes connections and answers nothing, and
        nobody shall wait for it for as long as for a broker whose answer is needed.
        """
        options = replace(
            self.options,
            request_timeout_ms=min(HEAR_ALL_MS, self.options.request_timeout_ms),
            connect_timeout_ms=min(HEAR_ALL_MS, self.options.connect_timeout_ms),
        )
        answers: dict[Address, MetadataResponse | None] = {}
        heard: list[MetadataResponse] = []
        named: set[Address] = set()
        left = {*self._bootstrap, *self._brokers.values()}
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
            while left:
                asked = sorted(left)
                answers |= zip(
                    asked, threads.map(lambda address: _heard(address, options, names), asked), strict=True
                )
                heard = [answer for answer in answers.values() if answer is not None]
                named = {(broker.host, broker.port) for answer in heard for broker in answer.brokers}
                left = named - answers.keys()
        topics: dict[str, tuple[TopicInfo, ...]] = {}
        by_all = bool(named) and all(answers[address] is not None for address in named)
        for topic in (topic for answer in heard for topic in answer.topics):
            if not topic.error_code:
                info = _info(topic)
                topics[info.name] = (*topics.get(info.name, ()), info)
                if info.topic_id is not None:
                    self.expect(info.topic_id, _known(_leaders(topic)))
            elif topic.error_code not in _NO_SUCH_TOPIC:
                by_all = False
        clusters = {answer.cluster_id for answer in heard}
        by_most = _by_most([answers[address] for address in named])
        return Heard(topics, by_all, clusters.pop() if len(clusters) == 1 else None, by_most)

    def _refresh(self, names: Collection[str] | None, budget: RetryBudget) -> list[str]:
        """Ask any broker; the names it does not know."""
        link = self.any_link(budget)
        answer = _metadata(link, names)
        self._told_by = link.address
        self.id = answer.cluster_id
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        if names is None:
            self._topics.clear()
        return [topic.name or "" for topic in answer.topics if not self._learn(topic)]

    def _learn(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name or ""
        if topic.error_code in _NO_SUCH_TOPIC:
            self._topics.pop(name, None)
            return False
        if topic.error_code:
            raise BrokerError(topic.error_code, f"topic {name}")
        info, leaders = _info(topic), _leaders(topic)
        topic_id = info.topic_id
        if self._is_behind(topic_id, leaders):
            self._doubt_teller()
            self._topics.pop(name, None)
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"topic {name}")
        if topic_id is not None:
            self._epochs[topic_id] = {**self._epochs.get(topic_id, {}), **_known(leaders)}
        self._topics[name] = Topic(info, leaders)
        return True

    # -- routes -------------------------------------------------------------------------------------------------

    def route(self, at: TopicPartition, budget: RetryBudget) -> Route:
        """The leader's connection, opened if need be; who gets an error doubts before the next try."""
        if at.topic not in self._topics:
            self.refresh([at.topic], budget)
        topic = self._topics[at.topic]
        leader = topic.leaders.get(at.partition)
        if leader is None:
            # One that was added since we asked?
            self.refresh([at.topic], budget)
            topic = self._topics[at.topic]
            leader = topic.leaders.get(at.partition)
        if leader is None:
            raise UnknownPartitionError(at, topic.info.partitions)
        address = self._brokers.get(leader.node)
        if leader.node < 0 or address is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(at))
        return Route(self.link(address, budget), topic.info.topic_id, leader.epoch)

    def expect(self, topic_id: uuid.UUID, epochs: Mapping[int, int]) -> None:
        """These leader epochs were heard of: whoever tells of lower ones is behind."""
        latest = self._epochs.setdefault(topic_id, {})
        for partition, epoch in epochs.items():
            latest[partition] = max(epoch, latest.get(partition, epoch))
        for name, topic in list(self._topics.items()):
            if topic.info.topic_id == topic_id and self._is_behind(topic_id, topic.leaders):
                self._topics.pop(name)
                self._doubt_teller()

    def _doubt_teller(self) -> None:
        if self._told_by is not None:
            self._behind.pop(self._told_by, None)
            self._behind[self._told_by] = None

    def _is_behind(self, topic_id: uuid.UUID | None, leaders: Mapping[int, Leader]) -> bool:
        latest = {} if topic_id is None else self._epochs.get(topic_id, {})
        return any(0 <= leader.epoch < latest.get(at, 0) for at, leader in leaders.items())

    def leader_epoch(self, at: TopicPartition) -> int:
        budget = self.budget(f"asking who leads {at}")
        while True:
            try:
                return self.route(at, budget).leader_epoch
            except RawError as error:
                self.doubt((at,))
                budget.pause(error)

    def knows(self, topic: str) -> bool:
        return topic in self._topics

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """What is known of their topics may be out of date: ask again at the next `route`."""
        for at in partitions:
            self._topics.pop(at.topic, None)

    # -- connections --------------------------------------------------------------------------------------------

    def link(self, address: Address, budget: RetryBudget) -> Link:
        link = self._links.get(address)
        if link is not None and link.usable:
            return link
        failed_at, error = self._failed.get(address, (0.0, None))
        if error is not None and time.monotonic() - failed_at < self._reconnect_pause_s:
            # Many partitions share a broker: when one has just found it gone, the others need not wait for it too.
            raise error
        try:
            link = self._links[address] = Link(address, self.options, budget.left_s)
        except ConnectionLostError as error:
            self._failed[address] = time.monotonic(), error
            raise
        self._failed.pop(address, None)
        return link

    def any_link(self, budget: RetryBudget) -> Link:
        """An open connection, or the first that opens; ConnectionLostError when no broker answers."""
        for address, link in self._links.items():
            if link.usable and address not in self._behind:
                return link
        failures: dict[Address, ConnectionLostError] = {}
        known = dict.fromkeys([*self._bootstrap, *self._brokers.values()])
        # Those that are behind come last, in turn: they may have caught up meanwhile.
        for address in [*(broker for broker in known if broker not in self._behind), *self._behind]:
            try:
                return self.link(address, budget)
            except ConnectionLostError as error:
                failures[address] = error
        raise ConnectionLostError("; ".join(str(error) for error in failures.values()))


def _heard(address: Address, options: RawOptions, names: Collection[str]) -> MetadataResponse | None:
    """What this broker tells, if it answers."""
    try:
        with closing(Link(address, options)) as link:
            return _metadata(link, names)
    except RawError:
        return None


def _by_most(answers: Collection[MetadataResponse | None]) -> dict[str, uuid.UUID]:
    """The id of each topic that more than half of them tell."""
    told = Counter(
        (topic.name or "", topic.topic_id)
        for answer in answers
        if answer is not None
        for topic in answer.topics
        if not topic.error_code and topic.topic_id != ZERO_UUID
    )
    return {name: uuid.UUID(bytes=found) for (name, found), count in told.items() if count * 2 > len(answers)}


def _metadata(link: Link, names: Collection[str] | None) -> MetadataResponse:
    version = link.version(ApiKey.METADATA, at_least=_METADATA_VERSION_MIN)
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    answer: MetadataResponse = link.call(
        ApiKey.METADATA, version, MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    )
    if answer.error_code:
        raise BrokerError(answer.error_code, "asking for metadata")
    return answer


def _info(topic: MetadataResponseTopic) -> TopicInfo:
    topic_id = None if topic.topic_id == ZERO_UUID else uuid.UUID(bytes=topic.topic_id)
    numbers = tuple(sorted(partition.partition_index for partition in topic.partitions))
    return TopicInfo(topic.name or "", topic_id, numbers, topic.is_internal)


def _leaders(topic: MetadataResponseTopic) -> dict[int, Leader]:
    return {
        partition.partition_index: Leader(partition.leader_id, partition.leader_epoch)
        for partition in topic.partitions
    }


def _known(leaders: Mapping[int, Leader]) -> dict[int, int]:
    return {at: leader.epoch for at, leader in leaders.items() if leader.epoch >= 0}
