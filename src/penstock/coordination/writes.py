"""What is written to the tree together, as operations: pure, but for what a registration must look up first."""

from collections.abc import Iterable, Sequence

from penstock.coordination import nodes
from penstock.coordination.image import ClusterImage
from penstock.coordination.nodes import BrokerRegistration, Life, PartitionState
from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    Set,
    Tree,
    operation_bytes,
)
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

# Left free in every multi for the guard.
_GUARD_BYTES = 4096


async def registration(tree: Tree, broker: BrokerRegistration, *, clean: bool) -> list[Operation]:
    """A broker and the life it leads, in place of what an earlier session or process of it left."""
    path = nodes.broker_path(broker.id)
    stale = await tree.get(path)
    if stale is not None and nodes.decode_broker(path, stale).identity != broker.identity:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker.id} is registered with another data directory: give this one another node.id",
        )
    operations: list[Operation] = [] if stale is None else [Delete(path, stale.version)]
    operations.append(Create(path, nodes.encode_broker(broker), ephemeral=True))
    life_path = nodes.life_path(broker.id)
    node = await tree.get(life_path)
    if node is None:
        operations.append(Create(life_path, nodes.encode_life(Life(broker.incarnation, clean))))
    else:
        last = nodes.decode_life(life_path, node)
        settled = last.settled and (clean or last.incarnation == broker.incarnation)
        life = nodes.encode_life(Life(broker.incarnation, settled))
        operations.append(Set(life_path, life, node.version))
    return operations


def expulsion(image: ClusterImage, broker: BrokerRegistration) -> list[Operation]:
    """A broker's registration goes, and its place as the controller; nothing when it has registered anew."""
    known, life = image.brokers.get(broker.id), image.lives.get(broker.id)
    if known is None or known.epoch != broker.epoch or life is None:
        return []
    operations: list[Operation] = [
        # Every registration writes it: one that the image does not know of yet makes this fail.
        Check(nodes.life_path(broker.id), life.version),
        Delete(nodes.broker_path(broker.id)),
    ]
    return [*operations, Delete(nodes.CONTROLLER)] if image.controller == broker.id else operations


def partition_creations(topic_id: bytes, first: int, states: Iterable[PartitionState]) -> list[Operation]:
    return [
        Create(nodes.partition_path(topic_id, number), nodes.encode_partition(state))
        for number, state in enumerate(states, first)
    ]


def partition_deletions(topic_id: bytes, numbers: Iterable[int]) -> list[Operation]:
    gone: list[Operation] = [Delete(nodes.partition_path(topic_id, number)) for number in numbers]
    return [*gone, Delete(nodes.partitions_path(topic_id))]


def in_parts(operations: Sequence[Operation]) -> list[list[Operation]]:
    """The operations in order, in as few multis as their size allows."""
    parts: list[list[Operation]] = [[]]
    size_bytes = 0
    for operation in operations:
        more_bytes = operation_bytes(operation)
        if size_bytes + more_bytes > MULTI_BYTES_MAX - _GUARD_BYTES and parts[-1]:
            parts.append([])
            size_bytes = 0
        parts[-1].append(operation)
        size_bytes += more_bytes
    return [part for part in parts if part]
