"""What is wrong with a topic's replicas, as far as the metadata shows: who leads, who is in sync, who is there."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.admin.cluster_info import Progress
from penstock.client.admin.retired_look import Retired
from penstock.client.admin.topics import PartitionInfo
from penstock.core.text import count_text, size_text
from penstock.diagnosis.findings import Finding, fail, ok, warn

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose replicas are on their way."""

    index: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied: Progress


@dataclass(frozen=True, slots=True)
class TopicHealth:
    name: str
    partitions: tuple[PartitionInfo, ...]
    live: frozenset[int]  # brokers
    min_in_sync: int
    groups: tuple[str, ...] = ()  # that read it
    moving: tuple[Move, ...] = ()
    retired: tuple[Retired, ...] = ()
    unknown: str = ""  # why nobody can tell what moves

    @property
    def offline(self) -> list[PartitionInfo]:
        return [partition for partition in self.partitions if partition.leader not in self.live]

    @property
    def short(self) -> list[PartitionInfo]:
        """Led, but refused to whoever wants acks=all."""
        least = self.min_in_sync
        return [
            partition
            for partition in self.partitions
            if partition.leader in self.live and len(partition.in_sync) < min(least, len(partition.replicas))
        ]

    @property
    def under_replicated(self) -> list[PartitionInfo]:
        return [
            partition
            for partition in self.partitions
            if partition.leader in self.live and self.missing(partition)
        ]

    def missing(self, partition: PartitionInfo) -> list[int]:
        """Who should have everything and has not; those on their way do not count."""
        coming = {broker for move in self.moving if move.index == partition.index for broker in move.adding}
        return [
            replica
            for replica in partition.replicas
            if replica not in partition.in_sync and replica not in coming
        ]


def topic_findings(topic: TopicHealth) -> list[Finding]:
    return [
        *_offline(topic),
        *_short(topic),
        *_under_replicated(topic),
        *_moving(topic),
        *_retired(topic),
        *_leaders(topic),
        *_readers(topic),
    ]


def _offline(topic: TopicHealth) -> list[Finding]:
    found = []
    if topic.offline:
        waited_for = sorted(
            {broker for part in topic.offline for broker in part.in_sync if broker not in topic.live}
        )
        others = sorted(
            {replica for part in topic.offline for replica in part.replicas if replica in topic.live}
        )
        advice = (
            f"start {_brokers(waited_for)}: only who was in sync last has everything that was acknowledged"
        )
        if not waited_for:
            advice = "an election should be over in a moment; look into the logs of its brokers if it is not"
        elif others:
            advice += f"; {_brokers(others)} may lack some of it, and leads only after an unclean election"
        found.append(fail("leader", f"{_places(topic, topic.offline)} cannot be written or read", advice))
    return found


def _short(topic: TopicHealth) -> list[Finding]:
    if not topic.short:
        return []
    fewest = min(len(partition.in_sync) for partition in topic.short)
    return [
        fail(
            "in sync",
            f"{_places(topic, topic.short)}: acks=all is refused, since {count_text(fewest, 'replica')} of "
            f"{topic.min_in_sync} (min.insync.replicas) are in sync",
            f"bring back {_brokers(_missing(topic, topic.short))}, or lower min.insync.replicas if you can do with "
            "fewer copies",
        )
    ]


def _under_replicated(topic: TopicHealth) -> list[Finding]:
    lacking = topic.under_replicated
    if not lacking:
        return [] if topic.offline else [ok("replicas", "all are in sync")]
    found = []
    gone = [broker for broker in _missing(topic, lacking) if broker not in topic.live]
    behind = [broker for broker in _missing(topic, lacking) if broker in topic.live]
    if gone:
        at = [part for part in lacking if any(broker in topic.missing(part) for broker in gone)]
        found.append(
            warn(
                "replicas",
                f"{_places(topic, at)}: {_brokers(gone)} {_is(gone)} not there",
                f"start {_brokers(gone)}; after penstock.heal.grace.ms the replicas are rebuilt on others, if there "
                "are enough",
            )
        )
    if behind:
        at = [part for part in lacking if any(broker_info in topic.missing(part) for broker_info in behind)]
        found.append(
            warn(
                "replicas",
                f"{_places(topic, at)}: {_brokers(behind)} {_is(behind)} there, but not in sync",
                "it catches up: see penstock_max_follower_lag_records of the leader; if it does not fall, look at "
                "its disk, its log, and the throttles (*.replication.throttled.rate)",
            )
        )
    return found


def _moving(topic: TopicHealth) -> list[Finding]:
    found = []
    if topic.unknown:
        advice = "ask again when there is a controller: `penstock status`"
        found.append(warn("moving", f"nobody can tell now what moves: {topic.unknown}", advice))
    for move in topic.moving[:_NAMED_MAX]:
        parts = []
        if move.adding:
            done, total = (size_text(size) for size in move.copied)
            parts.append(f"comes to {_brokers(move.adding)}, {done} of {total} copied")
        if move.removing:
            parts.append(f"leaves {_brokers(move.removing)}")
        found.append(ok("moving", f"partition {move.index}: {'; '.join(parts)}"))
    if len(topic.moving) > _NAMED_MAX:
        more = count_text(len(topic.moving) - _NAMED_MAX, "partition")
        found.append(ok("moving", f"and {more} more; `penstock status` tells how long it takes"))
    return found


def _retired(topic: TopicHealth) -> list[Finding]:
    found = []
    for retired in topic.retired:
        left = (
            f"{count_text(retired.left, 'offset')} still to be moved"
            if retired.left
            else "all of it is moved"
        )
        text = f"partition {retired.index}: read here below {retired.limit}, "
        text += f"from there on in partition {retired.into}; {left}"
        if retired.hidden:
            text += "; hidden: removed when nobody has written to it for penstock.retire.grace.ms"
        found.append(ok("retired", text))
    return found


def _leaders(topic: TopicHealth) -> list[Finding]:
    """Leaders that are not the first of their replicas: the load may be uneven."""
    away = [
        partition
        for partition in topic.partitions
        if partition.leader in topic.live and partition.replicas and partition.leader != partition.replicas[0]
    ]
    if not away:
        return []
    return [
        ok(
            "preferred",
            f"{_places(topic, away)}: not led by the first replica; leadership goes back by itself "
            "(auto.leader.rebalance.enable)",
        )
    ]


def _readers(topic: TopicHealth) -> list[Finding]:
    if not topic.groups:
        return [ok("groups", "no group reads it")]
    named = ", ".join(f"`penstock why {group}`" for group in topic.groups[:_NAMED_MAX])
    return [ok("groups", f"{count_text(len(topic.groups), 'group')} read it: {named} tells how they get on")]


def _missing(topic: TopicHealth, partitions: Sequence[PartitionInfo]) -> list[int]:
    return sorted({broker for part in partitions for broker in topic.missing(part)})


def _places(topic: TopicHealth, partitions: Sequence[PartitionInfo]) -> str:
    if len(partitions) == len(topic.partitions):
        return (
            f"all of {count_text(len(partitions), 'partition')}" if len(partitions) > 1 else "its partition"
        )
    named = ", ".join(str(partition.index) for partition in partitions[:_NAMED_MAX])
    more = f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else ""
    return f"partition {named}{more}"


def _brokers(numbers: Sequence[int]) -> str:
    return ("broker " if len(numbers) == 1 else "brokers ") + ", ".join(map(str, numbers))


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
