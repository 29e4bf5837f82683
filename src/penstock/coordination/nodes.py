"""Where things live in the tree, and how each is written: one small codec per kind of node (brokers: `registration`).

    /cluster                      the cluster's id
    /topics/<name>                topic id, number of partitions, config overrides, ends of removed partitions
    /partitions/<topic id>/<n>    replicas, leader, in-sync replicas, leader epoch; its version is the partition epoch
    /brokers/<id>                 ephemeral registration; its creation number is the broker epoch
    /lives/<id>                   the broker's latest process, and whether what it may have lost is settled
    /controller                   ephemeral: the broker that decides
    /controller-epoch             its version guards every write of the controller
    /configs/brokers/<id>         dynamic settings of one broker; `default` for all
    /producer-ids                 the first producer id that no block holds yet
    /secret                       what brokers prove with that they are of this cluster; made once (ADR 17)

A topic exists once its `/topics` node does: partitions are written before it, or with it, and are keyed by topic id, so
a topic too large for one multi can be written in parts and what is left of a failed creation belongs to nobody.

Values are JSON objects; unknown members are ignored, so that older readers get along with newer writers. Those of a
topic are also kept when it is written again: what a newer version noted there must survive an older controller.

Each says its version, 1 where it says none. It is raised only for what older readers would misread: they refuse it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from penstock.coordination.ids import id_bytes, id_text
from penstock.coordination.node_format import VERSION_MEMBER, dump, fields_of, naming
from penstock.coordination.tree import Node

CLUSTER = "/cluster"
TOPICS = "/topics"
PARTITIONS = "/partitions"
BROKERS = "/brokers"
CONFIGS = "/configs"
BROKER_CONFIGS = "/configs/brokers"
PRODUCER_IDS = "/producer-ids"
SECRET = "/secret"
LIVES = "/lives"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
DEFAULT_BROKER = "default"

_CACHED_MAX = 4096

# In the order they are created: parents first.
ROOTS = (TOPICS, PARTITIONS, BROKERS, CONFIGS, BROKER_CONFIGS, LIVES, CONTROLLER_EPOCH)
# Those that a store of an earlier version lacks.
LATER_ROOTS = (LIVES, CONTROLLER_EPOCH)


@dataclass(frozen=True, slots=True)
class RetirementState:
    """What makes a partition a retired one; see ADR 11."""

    # Below it, readers find what they always found; from it on, records are moved elsewhere.
    offset: int
    # The partition that takes them.
    into: int
    # When it was last known to have been written to (epoch ms), give or take a tenth of the grace.
    written_ms: int
    # The leader epoch that it was last looked at in: its producers have had the time to find that leader.
    epoch: int
    # Nothing is left for readers: clients are not told of it any more, until the next leader is elected.
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # -1 while nobody leads.
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    # Not in sync, but known to hold everything committed: they may lead when nobody in sync can.
    eligible: tuple[int, ...] = ()
    # Left without the leader's word, who may be dead: they are heard if it is; see `controller.election`.
    suspects: tuple[int, ...] = ()
    # While replicas move: those that come and those that go. In both: came with a move that was taken back.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    retirement: RetirementState | None = None

    @property
    def hidden(self) -> bool:
        """Whether clients are not told of it. After an election they are, for a while: who writes has to find it."""
        retirement = self.retirement
        return retirement is not None and retirement.hidden and retirement.epoch == self.leader_epoch

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas it has once nothing moves any more."""
        return (
            tuple(replica for replica in self.replicas if replica not in self.removing)
            if self.removing
            else self.replicas
        )

    @property
    def assured(self) -> int:
        """How many replicas it can be held to: those it had before a move or has after it, whichever are fewer."""
        return len(self.replicas) - max(len(self.adding), len(self.removing))

    def with_leader(self, leader: int) -> "PartitionState":
        """The next epoch, under this leader (who may be the same as before)."""
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + 1)


@dataclass(frozen=True, slots=True)
class Removed:
    """What is left of a retired partition that was removed: where a new one of its number goes on; see ADR 15."""

    # Readers have seen everything below it; what was written from it on, others have.
    limit: int
    # Where its log ended: no offset below it is ever given to another record.
    end: int
    # No leader of it had this epoch or a later one.
    epoch: int


NONE_REMOVED: Mapping[int, Removed] = MappingProxyType({})
NOTHING_UNKNOWN: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicRecord:
    id: bytes
    partitions: int
    configs: Mapping[str, str]
    version: int = 0
    # The leader epoch that partitions to come begin with: none of an earlier partition with the same number had it.
    first_epoch: int = 0
    # By number: the latest that went, also where there is a new one by now.
    removed: Mapping[int, Removed] = field(default_factory=lambda: NONE_REMOVED)
    # Members that this version does not know, as they were read.
    unknown: Mapping[str, Any] = field(default_factory=lambda: NOTHING_UNKNOWN)


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def encode_topic(record: TopicRecord) -> bytes:
    fields = {
        **record.unknown,
        "id": id_text(record.id),
        "partitions": record.partitions,
        "configs": dict(record.configs),
    }
    if record.first_epoch:
        fields["first_epoch"] = record.first_epoch
    if record.removed:
        fields["removed"] = {
            str(number): (removed.limit, removed.end, removed.epoch)
            for number, removed in record.removed.items()
        }
    return dump(fields)


def decode_topic(path: str, node: Node) -> TopicRecord:
    with naming(path):
        fields = fields_of(node.data)
        configs = {str(name): str(value) for name, value in fields["configs"].items()}
        return TopicRecord(
            id_bytes(fields["id"]),
            int(fields["partitions"]),
            configs,
            node.version,
            int(fields.get("first_epoch", 0)),
            # Absent where the last one went under an earlier version, which did not keep it.
            {
                int(number): Removed(*map(int, removed))
                for number, removed in fields.get("removed", {}).items()
            },
            {name: value for name, value in fields.items() if name not in _TOPIC_MEMBERS},
        )


_TOPIC_MEMBERS = frozenset({VERSION_MEMBER, "id", "partitions", "configs", "first_epoch", "removed"})


def partitions_path(topic_id: bytes) -> str:
    return f"{PARTITIONS}/{id_text(topic_id)}"


def partition_path(topic_id: bytes, partition: int) -> str:
    return f"{PARTITIONS}/{id_text(topic_id)}/{partition}"


# Thousands of partitions share a handful of states: on one node all have the same.
@lru_cache(maxsize=_CACHED_MAX)
def encode_partition(state: PartitionState) -> bytes:
    fields: dict[str, Any] = {
        "replicas": state.replicas,
        "isr": state.isr,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
    }
    for name in _RARE_SETS:
        if members := getattr(state, name):
            fields[name] = members
    if (retirement := state.retirement) is not None:
        into, written_ms, epoch = retirement.into, retirement.written_ms, retirement.epoch
        fields["inlet"] = (retirement.offset, into, written_ms, epoch, int(retirement.hidden))
    return dump(fields)


_RARE_SETS = ("eligible", "suspects", "adding", "removing")


def decode_partition(path: str, node: Node) -> PartitionState:
    with naming(path):
        return _decode_partition(node.data, node.version)


@lru_cache(maxsize=_CACHED_MAX)
def _decode_partition(data: bytes, version: int) -> PartitionState:
    fields = fields_of(data)
    retirement = None
    if "inlet" in fields:
        offset, into, written_ms, epoch, hidden = map(int, fields["inlet"])
        retirement = RetirementState(offset, into, written_ms, epoch, bool(hidden))
    return PartitionState(
        replicas=tuple(int(replica) for replica in fields["replicas"]),
        isr=tuple(int(replica) for replica in fields["isr"]),
        leader=int(fields["leader"]),
        leader_epoch=int(fields["leader_epoch"]),
        partition_epoch=version,
        retirement=retirement,
        **{name: tuple(int(replica) for replica in fields[name]) for name in _RARE_SETS if name in fields},
    )


def broker_path(broker: int) -> str:
    return f"{BROKERS}/{broker}"


def life_path(broker: int) -> str:
    return f"{LIVES}/{broker}"


def encode_controller(broker: int) -> bytes:
    return dump({"broker": broker})


def decode_controller(path: str, node: Node) -> int:
    with naming(path):
        return int(fields_of(node.data)["broker"])


def broker_configs_path(broker: int | None) -> str:
    """None for the settings of all brokers."""
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER if broker is None else broker}"


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return dump(dict(configs))


def decode_configs(path: str, node: Node) -> dict[str, str]:
    with naming(path):
        fields = fields_of(node.data)
        # Beside the settings, not around them: releases before would find none.
        return {str(name): str(value) for name, value in fields.items() if name != VERSION_MEMBER}


def encode_cluster(cluster_id: str) -> bytes:
    return dump({"id": cluster_id})


def decode_cluster(path: str, node: Node) -> str:
    with naming(path):
        fields = fields_of(node.data)
        return str(fields["id"])


def encode_secret(secret: bytes) -> bytes:
    return dump({"secret": secret.hex()})


def decode_secret(path: str, node: Node) -> bytes:
    with naming(path):
        return bytes.fromhex(fields_of(node.data)["secret"])


def encode_producer_ids(following: int) -> bytes:
    return dump({"next": following})


def decode_producer_ids(path: str, node: Node) -> int:
    with naming(path):
        fields = fields_of(node.data)
        return int(fields["next"])
