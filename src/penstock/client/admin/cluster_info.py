"""A cluster at one moment, as an operator wants to see it: brokers, partitions, and replicas that are on their way."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from penstock.client.topic_partition import TopicPartition


class BrokerState(StrEnum):
    IN_SERVICE = "in service"
    DRAINING = "draining"  # its replicas move to others
    DRAINED = "drained"  # and are gone: it may be stopped
    SILENT = "no answer"  # the cluster counts on it, but it does not answer us
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Where one partition is."""

    leader: int  # -1: nobody
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Those it has once nothing moves any more."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        """One that should have everything has not; those on their way do not count."""
        return any(replica not in self.in_sync for replica in self.replicas if replica not in self.adding)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: int
    host: str
    port: int
    rack: str | None
    machine: str | None  # the host label, where several brokers share a machine
    state: BrokerState
    controller: bool
    replicas: int
    leaders: int
    size_bytes: int | None  # of its logs; None: it did not say which it has
    free_bytes: int | None  # of its disk

    @property
    def is_live(self) -> bool:
        return self.state is not BrokerState.DEAD


class Progress(NamedTuple):
    done_bytes: int
    total_bytes: int


class Count(NamedTuple):
    there: int
    wanted: int


def hidden(shown: Mapping[TopicPartition, Replicas], held: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Retired partitions that metadata leaves out: they still take records, and may have some left to move."""
    return [place for place in held if place not in shown]


@dataclass(frozen=True)
class ClusterInfo:
    id: str
    brokers: Mapping[int, BrokerInfo]
    partitions: Mapping[TopicPartition, Replicas]
    # Bytes of each replica, by broker; what is not known is left out.
    sizes: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    # Why replicas stay where they should not: too many brokers are gone, or nobody can take more. Empty: all is well.
    trouble: str = ""
    # How many replicas topics should have that were made while brokers were missing.
    wanted_replicas: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def moving(self) -> dict[TopicPartition, Replicas]:
        return {place: partition for place, partition in self.partitions.items() if partition.is_moving}

    @cached_property
    def offline(self) -> list[TopicPartition]:
        return [place for place, partition in self.partitions.items() if partition.is_offline]

    @cached_property
    def under_replicated(self) -> list[TopicPartition]:
        return [place for place, partition in self.partitions.items() if partition.is_under_replicated]

    @cached_property
    def incomplete(self) -> dict[str, Count]:
        """Topics with fewer replicas than they should have and the brokers there are, dead ones among them, could
        hold: how many a partition has at least, of how many."""
        machines = {broker.machine or broker.id for broker in self.brokers.values()}
        fewest: dict[str, int] = {}
        for place, partition in self.partitions.items():
            if place.topic in self.wanted_replicas:
                there = len(set(partition.target) - set(partition.adding))
                fewest[place.topic] = min(there, fewest.get(place.topic, there))
        counts = {
            topic: Count(there, min(self.wanted_replicas[topic], len(machines)))
            for topic, there in fewest.items()
        }
        return {topic: count for topic, count in counts.items() if count.there < count.wanted}

    def on(self, broker: int) -> list[TopicPartition]:
        """The partitions with a replica there, also one that is still to be filled, or that metadata hides."""
        shown = [place for place, partition in self.partitions.items() if broker in partition.replicas]
        return shown + sorted(hidden(self.partitions, self.sizes.get(broker, ())))

    def size_of(self, place: TopicPartition) -> int:
        """What a whole copy takes: the leader's, or the largest."""
        replicas = self.partitions.get(place)
        if replicas is None:
            return max((sizes.get(place, 0) for sizes in self.sizes.values()), default=0)
        sizes = {broker: self.sizes.get(broker, {}).get(place, 0) for broker in replicas.replicas}
        return sizes.get(replicas.leader) or max(sizes.values(), default=0)

    def copied(self, place: TopicPartition) -> Progress:
        """How far the new replicas of a partition that moves are."""
        replicas, size = self.partitions[place], self.size_of(place)
        done = sum(
            size if broker in replicas.in_sync else min(size, self.sizes.get(broker, {}).get(place, 0))
            for broker in replicas.adding
        )
        return Progress(done, size * len(replicas.adding))
