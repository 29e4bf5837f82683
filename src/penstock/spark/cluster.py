"""What the driver asks a cluster: which partitions there are, and which offsets a position means in them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.client.raw import (
    EARLIEST,
    LATEST,
    OffsetAt,
    Retirement,
    TopicInfo,
    TopicPartition,
    UnknownTopicError,
)
from penstock.spark.errors import OptionError
from penstock.spark.offsets import Offsets, named
from penstock.spark.options import Position, Subscription


class Cluster(Protocol):
    """The part of the raw client that planning needs."""

    def topics(self) -> dict[str, TopicInfo]: ...

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]: ...

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]: ...

    def serves(self, at: TopicPartition, offset: int) -> bool: ...

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]: ...

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, frozenset[str]]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """The partitions a subscription has just now; `ids` where the broker knows topic ids."""

    partitions: tuple[TopicPartition, ...]
    ids: dict[str, str]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(at.topic for at in self.partitions))


def find(cluster: Cluster, subscription: Subscription, *, missing_ok: bool = False) -> Found:
    """With `missing_ok`, what is not there is left out: a running stream judges by itself what that means."""
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        # As Kafka's consumers have it: a pattern matches the whole name, and never an internal topic.
        infos = {
            name: info
            for name, info in cluster.topics().items()
            if not info.internal and pattern.fullmatch(name)
        }
        return _found(infos.values())
    if subscription.topics:
        return _found(_describe(cluster, subscription.topics, missing_ok=missing_ok).values())
    wanted = subscription.partitions
    infos = _describe(cluster, dict.fromkeys(at.topic for at in wanted), missing_ok=missing_ok)
    there = set(_found(infos.values()).partitions)
    missing = [at for at in wanted if at not in there]
    if missing and not missing_ok:
        raise OptionError(f"assign names {named(missing)}, which the broker does not have")
    ids = _found(infos.values()).ids
    return Found(tuple(at for at in wanted if at in there), ids)


def _describe(cluster: Cluster, names: Iterable[str], *, missing_ok: bool) -> dict[str, TopicInfo]:
    names = list(names)
    try:
        return cluster.describe(names)
    except UnknownTopicError as error:
        if not missing_ok:
            raise
        left = [name for name in names if name not in error.names]
    # Another one may vanish in between; then the next trigger sees it.
    return cluster.describe(left) if left else {}


def _found(infos: Iterable[TopicInfo]) -> Found:
    ordered = sorted(infos, key=lambda info: info.name)
    return Found(
        tuple(TopicPartition(info.name, number) for info in ordered for number in sorted(info.partitions)),
        {info.name: str(info.topic_id) for info in ordered if info.topic_id is not None},
    )


def edges(
    cluster: Cluster, partitions: Iterable[TopicPartition], edge: int, *, committed: bool = False
) -> Offsets:
    """EARLIEST or LATEST of each."""
    answers = cluster.offsets(dict.fromkeys(partitions, edge), committed=committed)
    return {at: answer.offset for at, answer in answers.items()}


def served(
    cluster: Cluster, begins: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Partitions whose log begins behind where a reader stands, who misses nothing all the same.

    That is a partition which was retired, removed and grown again: what was written to it between the last offset that
    readers saw and the first of the new log is in other partitions. That it is served alone says nothing: a leader that
    has come since `earliest` was asked for may not have deleted so much.
    """
    late = {at: begin for at, begin in begins.items() if at in earliest and begin < earliest[at]}
    first = firsts(cluster, {at: earliest[at] for at in late})
    return {at for at, begin in late.items() if first.get(at) == earliest[at] and cluster.serves(at, begin)}


def firsts(cluster: Cluster, earliest: Mapping[TopicPartition, int]) -> Offsets:
    """Where logs began that do not begin at 0: those of partitions which were removed and grown again."""
    late = [at for at, offset in earliest.items() if offset > 0]
    known = cluster.retirements(late) if late else {}
    return {at: told.first for at, told in known.items() if told.first > 0}


def uncompacted(cluster: Cluster, names: Iterable[str]) -> set[str]:
    """Topics in whose logs every offset has its batch; not those of which the broker does not tell it."""
    policies = cluster.cleanup_policies(names)
    return {name for name, policy in policies.items() if "compact" not in policy}


def resolve(
    cluster: Cluster,
    position: Position,
    partitions: Iterable[TopicPartition],
    *,
    committed: bool,
    latest_when_none: bool,
) -> Offsets:
    """The offsets that a position means now. `latest_when_none`: a time after the last record means the end."""
    wanted = tuple(partitions)
    if position.everywhere is not None:
        return edges(cluster, wanted, position.everywhere, committed=committed)
    if position.offsets is not None:
        _check_cover(position.option, position.offsets, wanted)
        return _resolve_offsets(cluster, position.offsets, committed=committed)
    if position.timestamps is not None:
        _check_cover(position.option, position.timestamps, wanted)
        times = position.timestamps
    else:
        assert position.timestamp is not None
        times = dict.fromkeys(wanted, position.timestamp)
    return _resolve_times(
        cluster, position.option, times, committed=committed, latest_when_none=latest_when_none
    )


def _resolve_offsets(cluster: Cluster, given: Offsets, *, committed: bool) -> Offsets:
    named_edges = {at: offset for at, offset in given.items() if offset in (EARLIEST, LATEST)}
    answers = cluster.offsets(named_edges, committed=committed) if named_edges else {}
    return {at: answers[at].offset if at in answers else offset for at, offset in given.items()}


def _resolve_times(
    cluster: Cluster, option: str, times: Offsets, *, committed: bool, latest_when_none: bool
) -> Offsets:
    # The ends first: what comes between the two requests may be that late, and is behind them.
    latest = edges(cluster, times, LATEST, committed=committed) if latest_when_none else {}
    answers = cluster.offsets(times, committed=committed)
    none_after = {at for at in times if answers[at].offset < 0}
    if none_after and not latest_when_none:
        raise OptionError(
            f"{option}: {named(none_after)} has no record at or after that time; "
            "set startingOffsetsByTimestampStrategy=latest to start at the end there"
        )
    return {at: latest[at] if at in none_after else answers[at].offset for at in times}


def _check_cover(option: str, given: Offsets, wanted: tuple[TopicPartition, ...]) -> None:
    missing = [at for at in wanted if at not in given]
    if missing:
        raise OptionError(
            f"{option} must name every partition; {named(missing)} is missing (-1: latest, -2: earliest)"
        )
    unknown = sorted(given.keys() - set(wanted))
    if unknown:
        raise OptionError(f"{option} names {named(unknown)}, which is not among the partitions to read")
