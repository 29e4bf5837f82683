"""The cluster's metadata on top of the tree: every write is one multi guarded by versions, then the image follows.

Writes of one store take turns, so that what a caller decides from the image still holds when it is written; against
other processes the versions stand guard (`ConflictError`: look again, decide again).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from penstock.coordination import nodes
from penstock.coordination.image import ClusterImage, ImageDelta, Topic
from penstock.coordination.nodes import BrokerRegistration, PartitionState, TopicRecord
from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    Change,
    ConflictError,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    FeedGapError,
    NodeExistsError,
    Operation,
    Set,
    Tree,
    operation_bytes,
)
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

PRODUCER_ID_BLOCK = 1000
# Left free in every multi for the guard (coordination/election.py).
_GUARD_BYTES = 4096
# How long a broker that cannot reach the store rests before it asks for changes again.
_RECONNECT_SECONDS = 0.1
# A registration may find that the old one vanishes under its hands, once or twice.
_REGISTRATIONS_MAX = 10
# Ids Kafka keeps for itself: "no id" and its metadata log.
_RESERVED_IDS = {bytes(16), bytes(15) + b"\x01"}

Alter = Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    # One per partition; see `PartitionState`.
    partitions: Sequence[PartitionState]
    configs: Mapping[str, str] = field(default_factory=dict)


class MetadataStore:
    def __init__(
        self, tree: Tree, random: Random, listener: Callable[[ImageDelta], None] = lambda _: None
    ) -> None:
        """`listener` hears of every change to the image, right after it, whoever made it."""
        self._tree = tree
        self._random = random
        self._listener = listener
        self._turn = asyncio.Lock()
        self.image = ClusterImage()

    async def load(self) -> ClusterImage:
        """Read everything; the first one ever also lays the ground and names the cluster."""
        if await self._tree.get(nodes.CLUSTER) is None:
            cluster = Create(nodes.CLUSTER, nodes.encode_cluster(nodes.id_text(self.random_id())))
            # Another broker may be first: then its name counts.
            with suppress(NodeExistsError):
                await self._tree.multi([cluster, *(Create(path, b"{}") for path in nodes.ROOTS)])
        await self._reload()
        return self.image

    @property
    def tree(self) -> Tree:
        return self._tree

    def attach(self, tree: Tree) -> None:
        """Go on in another session; the image stays as it was until the next `load` or `follow`."""
        self._tree = tree

    async def follow(self) -> None:
        """Keep the image current with what others write, until cancelled or the session is over."""
        while True:
            try:
                async for change in self._tree.changes(self.image.number):
                    self._listener(self.image.apply(change))
            except FeedGapError:
                await self._reload()
            except ConnectionLostError:
                await asyncio.sleep(_RECONNECT_SECONDS)

    def random_id(self) -> bytes:
        while True:
            sixteen = self._random.randbytes(16)
            # A leading dash would read as an option on command lines.
            if sixteen not in _RESERVED_IDS and not nodes.id_text(sixteen).startswith("-"):
                return sixteen

    # -- topics --

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        """All of them in one multi where that is possible, each whole in any case."""
        async with self._turn:
            for new in wanted:
                if new.name in self.image.topics:
                    raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
            partitions: list[Operation] = []
            topics: list[Operation] = []
            for new in wanted:
                topic_id = self.random_id()
                partitions.append(Create(nodes.partitions_path(topic_id), b"{}"))
                partitions += _partition_creations(topic_id, 0, new.partitions)
                record = TopicRecord(topic_id, len(new.partitions), new.configs)
                topics.append(Create(nodes.topic_path(new.name), nodes.encode_topic(record)))
            await self._write_in_parts([*partitions, *topics])
            return [self.image.topics[new.name] for new in wanted]

    async def delete_topic(self, name: str) -> Topic:
        """The topic's node goes in the first part, so it is gone even when the rest is not yet."""
        async with self._turn:
            topic = self._topic(name)
            await self._write_in_parts(
                [
                    Delete(nodes.topic_path(name), topic.version),
                    *_partition_deletions(topic.id, self.image.partition_numbers(topic.id)),
                ]
            )
            return topic

    async def create_partitions(self, name: str, added: Sequence[PartitionState]) -> Topic:
        """The topic's count goes in the last part, so partitions are seen all at once."""
        async with self._turn:
            topic = self._topic(name)
            count = len(topic.partitions)
            # Left over from an attempt that never got as far as the count.
            stale = [number for number in self.image.partition_numbers(topic.id) if number >= count]
            record = TopicRecord(topic.id, count + len(added), topic.configs)
            await self._write_in_parts(
                [
                    *(Delete(nodes.partition_path(topic.id, number)) for number in stale),
                    *_partition_creations(topic.id, count, added),
                    Set(nodes.topic_path(name), nodes.encode_topic(record), topic.version),
                ]
            )
            return self._topic(name)

    async def alter_topic_configs(self, name: str, alter: Alter) -> Topic:
        """`alter` is given the overrides in force and returns those to be; what it raises ends the matter."""
        async with self._turn:
            topic = self._topic(name)
            record = TopicRecord(topic.id, len(topic.partitions), alter(topic.configs))
            await self._write([Set(nodes.topic_path(name), nodes.encode_topic(record), topic.version)])
            return self._topic(name)

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        return await self.alter_topic_configs(name, lambda _: configs)

    async def bump_leader_epochs(self, broker: int) -> None:
        """Begin a new leader epoch for every partition this broker leads: its log may have lost an unsynced tail."""
        await self.update_partitions(
            {
                (topic.name, number): state.with_leader(broker)
                for topic in self.image.topics.values()
                for number, state in enumerate(topic.partitions)
                if state.leader == broker
            }
        )

    async def update_partitions(self, states: Mapping[tuple[str, int], PartitionState]) -> None:
        """Write partition states, each on top of the partition epoch it carries."""
        async with self._turn:
            await self._write_in_parts(
                [
                    Set(
                        nodes.partition_path(self._topic(name).id, number),
                        nodes.encode_partition(state),
                        state.partition_epoch,
                    )
                    for (name, number), state in states.items()
                ]
            )

    async def sweep_orphans(self) -> int:
        """Remove partitions no topic owns. For the one process that writes topics, when it begins to."""
        async with self._turn:
            orphans = self.image.orphans()
            for topic_id in orphans:
                await self._write_in_parts(
                    _partition_deletions(topic_id, self.image.partition_numbers(topic_id))
                )
            return len(orphans)

    # -- brokers --

    async def register_broker(self, broker: BrokerRegistration) -> BrokerRegistration:
        """Announce a broker for the length of this session; its epoch is in what is returned.

        The same data directory come back replaces its own stale registration; another one is refused.
        """
        async with self._turn:
            for _ in range(_REGISTRATIONS_MAX):
                operations = await self._registration(broker)
                try:
                    change = await self._write(operations)
                except ConflictError:
                    continue  # the old session ended in between
                return replace(broker, epoch=change.number)
        raise CoordinationError(
            f"broker {broker.id} cannot be registered: others write to its place all the time"
        )

    async def _registration(self, broker: BrokerRegistration) -> list[Operation]:
        path = nodes.broker_path(broker.id)
        stale = await self._tree.get(path)
        if stale is not None and nodes.decode_broker(path, stale).identity != broker.identity:
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {broker.id} is registered with another data directory: give this one another node.id",
            )
        operations: list[Operation] = [] if stale is None else [Delete(path, stale.version)]
        operations.append(Create(path, nodes.encode_broker(broker), ephemeral=True))
        return operations

    async def alter_broker_configs(self, broker: int | None, alter: Alter) -> None:
        """As `alter_topic_configs`; None for the settings of all brokers."""
        async with self._turn:
            path = nodes.broker_configs_path(broker)
            node = await self._tree.get(path)
            configs = nodes.encode_configs(alter({} if node is None else nodes.decode_configs(path, node)))
            await self._write([Create(path, configs) if node is None else Set(path, configs, node.version)])

    async def set_broker_configs(self, broker: int | None, configs: Mapping[str, str]) -> None:
        await self.alter_broker_configs(broker, lambda _: configs)

    # -- producer ids --

    async def next_producer_id_block(self) -> range:
        """A block of producer ids that nobody else was given or will be."""
        path = nodes.PRODUCER_IDS
        while True:
            node = await self._tree.get(path)
            first = 0 if node is None else nodes.decode_producer_ids(path, node)
            following = nodes.encode_producer_ids(first + PRODUCER_ID_BLOCK)
            write = Create(path, following) if node is None else Set(path, following, node.version)
            try:
                change = await self._tree.multi([write])
            except ConflictError:
                continue  # Another broker took this block; every such loss is somebody's progress.
            await self._absorb(change)
            return range(first, first + PRODUCER_ID_BLOCK)

    # -- writing --

    def _topic(self, name: str) -> Topic:
        topic = self.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    async def _write_in_parts(self, operations: Sequence[Operation]) -> None:
        for part in _parts(operations):
            await self._write(part)

    async def _write(self, operations: Sequence[Operation]) -> Change:
        try:
            change = await self._tree.multi(operations)
        except ConflictError:
            # The image was behind; the caller's next look at it must not be.
            await self._reload()
            raise
        await self._absorb(change)
        return change

    async def _absorb(self, change: Change) -> None:
        if change.previous == self.image.number:
            self._listener(self.image.apply(change))
        elif change.number > self.image.number:
            await self._catch_up(change.number)

    async def _reload(self) -> None:
        self._listener(self.image.replace(await self._tree.snapshot()))

    async def _catch_up(self, number: int) -> None:
        """Others wrote in between, or a write of ours was cancelled before the image had it."""
        try:
            async for change in self._tree.changes(self.image.number):
                self._listener(self.image.apply(change))
                if self.image.number >= number:
                    return
        except FeedGapError:
            await self._reload()


def _partition_creations(topic_id: bytes, first: int, states: Iterable[PartitionState]) -> list[Operation]:
    return [
        Create(nodes.partition_path(topic_id, number), nodes.encode_partition(state))
        for number, state in enumerate(states, first)
    ]


def _partition_deletions(topic_id: bytes, numbers: Iterable[int]) -> list[Operation]:
    gone: list[Operation] = [Delete(nodes.partition_path(topic_id, number)) for number in numbers]
    return [*gone, Delete(nodes.partitions_path(topic_id))]


def _parts(operations: Sequence[Operation]) -> list[list[Operation]]:
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
