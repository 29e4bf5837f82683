"""What is written to the tree together, as operations: pure, but for what must be looked up first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.coordination import nodes
from penstock.coordination.ids import id_text
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.nodes import PartitionState, Removed, TopicRecord
from penstock.coordination.registration import (
    BrokerRegistration,
    Life,
    decode_broker,
    decode_life,
    encode_broker,
    encode_life,
)
from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    NodeExistsError,
    Operation,
    Set,
    Tree,
    multi_bytes,
    operation_bytes,
)
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import MULTI_OPERATIONS_MAX

# The version of the node above a topic's partitions, which nobody writes to until the topic is deleted.
_ALIVE = 0

# Left free in every multi for the guard.
_GUARD_BYTES = 4096


async def lay_ground(tree: Tree, new_id: Callable[[], bytes], new_secret: Callable[[], bytes]) -> None:
    """What every cluster has; the first one ever names it."""
    if await tree.get(nodes.CLUSTER) is None:
        cluster = Create(nodes.CLUSTER, nodes.encode_cluster(id_text(new_id())))
        secret = Create(nodes.SECRET, nodes.encode_secret(new_secret()))
        # Another broker may be first: then its name counts.
        with suppress(NodeExistsError):
            await tree.multi([cluster, secret, *(Create(path, b"{}") for path in nodes.ROOTS)])
        return
    # A store of an earlier version has none: whoever comes first makes it, and all others take what is there.
    if await tree.get(nodes.SECRET) is None:
        with suppress(NodeExistsError):
            await tree.multi([Create(nodes.SECRET, nodes.encode_secret(new_secret()))])
    for path in nodes.LATER_ROOTS:
        with suppress(NodeExistsError):
            if await tree.get(path) is None:
                await tree.multi([Create(path, b"{}")])


async def registration(tree: Tree, broker: BrokerRegistration, *, clean: bool) -> list[Operation]:
    """A broker and the life it leads, in place of what an earlier session or process of it left."""
    path = nodes.broker_path(broker.id)
    stale = await tree.get(path)
    if stale is not None and decode_broker(path, stale).identity != broker.identity:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker.id} is registered with another data directory: give this one another node.id",
        )
    operations: list[Operation] = [] if stale is None else [Delete(path, stale.version)]
    operations.append(Create(path, encode_broker(broker), ephemeral=True))
    life_path = nodes.life_path(broker.id)
    node = await tree.get(life_path)
    if node is None:
        operations.append(Create(life_path, encode_life(Life(broker.incarnation, clean))))
    else:
        last = decode_life(life_path, node)
        settled = last.settled and (clean or last.incarnation == broker.incarnation)
        operations.append(Set(life_path, encode_life(Life(broker.incarnation, settled)), node.version))
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


def is_alive(topic_id: bytes) -> Check:
    """Goes with every write to a topic by its name, which may be another topic's by now, of the same version."""
    return Check(nodes.partitions_path(topic_id), _ALIVE)


def topic_deletion(topic: Topic, numbers: Iterable[int]) -> Iterator[Operation]:
    """The topic's node goes in the first part, so it is gone even when the rest is not yet."""
    yield Delete(nodes.topic_path(topic.name), topic.version)
    yield Set(nodes.partitions_path(topic.id), b"{}", _ALIVE)
    yield from partition_deletions(topic.id, numbers)


def topic_creations(
    topics: Sequence[tuple[str, TopicRecord, Sequence[PartitionState]]],
) -> Iterator[Operation]:
    """Topics with their partitions, whose nodes come first, so that a topic that is seen is whole."""
    for _, record, states in topics:
        yield Create(nodes.partitions_path(record.id), b"{}")
        yield from partition_creations(record.id, 0, states)
    for name, record, _ in topics:
        yield Create(nodes.topic_path(name), nodes.encode_topic(record))


def topic_growth(topic: Topic, stale: Iterable[int], added: Sequence[PartitionState]) -> list[Operation]:
    """More partitions, in place of `stale` nodes. The topic's count goes last, so that they are seen all at once."""
    count = len(topic.partitions)
    added = [replace(state, leader_epoch=topic.first_epoch) for state in added]
    record = replace(_record(topic), partitions=count + len(added))
    return [
        *(Delete(nodes.partition_path(topic.id, number)) for number in stale),
        *partition_creations(topic.id, count, added),
        Set(nodes.topic_path(topic.name), nodes.encode_topic(record), topic.version),
    ]


def topic_shrinkage(topic: Topic, gone: Mapping[int, Removed], configs: Mapping[str, str]) -> list[Operation]:
    """Its last partitions go, as they are in `topic`; what is left of each is kept with the topic."""
    states = {number: topic.partitions[number] for number in gone}
    record = replace(
        _record(topic),
        partitions=len(topic.partitions) - len(gone),
        configs=configs,
        first_epoch=max([topic.first_epoch, *(state.leader_epoch + 1 for state in states.values())]),
        removed={**topic.removed, **gone},
    )
    return [
        Set(nodes.topic_path(topic.name), nodes.encode_topic(record), topic.version),
        *(
            Delete(nodes.partition_path(topic.id, number), state.partition_epoch)
            for number, state in states.items()
        ),
    ]


def topic_configs(topic: Topic, configs: Mapping[str, str]) -> Operation:
    record = replace(_record(topic), configs=configs)
    return Set(nodes.topic_path(topic.name), nodes.encode_topic(record), topic.version)


def _record(topic: Topic) -> TopicRecord:
    count = len(topic.partitions)
    return TopicRecord(
        topic.id, count, topic.configs, topic.version, topic.first_epoch, topic.removed, topic.unknown
    )


def partition_updates(states: Mapping[tuple[bytes, int], PartitionState]) -> list[Operation]:
    """By topic id and number, each on top of the partition epoch it carries."""
    return [
        Set(nodes.partition_path(topic_id, number), nodes.encode_partition(state), state.partition_epoch)
        for (topic_id, number), state in states.items()
    ]


def partition_creations(topic_id: bytes, first: int, states: Iterable[PartitionState]) -> Iterator[Operation]:
    for number, state in enumerate(states, first):
        yield Create(nodes.partition_path(topic_id, number), nodes.encode_partition(state))


def partition_deletions(topic_id: bytes, numbers: Iterable[int]) -> Iterator[Operation]:
    for number in numbers:
        yield Delete(nodes.partition_path(topic_id, number))
    yield Delete(nodes.partitions_path(topic_id))


def in_parts(operations: Iterable[Operation], checks: Sequence[Check] = ()) -> Iterator[list[Operation]]:
    """The operations in order, in as few multis as their size and number allow; each is made when it is asked for.

    `checks` go with each of them: where many brokers are involved, those take much of the room.
    """
    room_bytes = MULTI_BYTES_MAX - _GUARD_BYTES - multi_bytes(checks)
    part: list[Operation] = []
    size_bytes = 0
    for operation in operations:
        more_bytes = operation_bytes(operation)
        if part and (size_bytes + more_bytes > room_bytes or len(part) == MULTI_OPERATIONS_MAX):
            yield part
            part, size_bytes = [], 0
        part.append(operation)
        size_bytes += more_bytes
    if part:
        yield part
