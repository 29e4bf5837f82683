"""The cluster's metadata on top of the tree: every write is one multi guarded by versions, then the image follows.

Writes of one store take turns, so that what a caller decides from the image still holds when it is written; against
other processes the versions stand guard (`ConflictError`: look again, decide again). Topics and partitions are written
by the controller alone: `guard` is what its every multi checks besides, so that one that was replaced writes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from penstock.coordination import nodes, writes
from penstock.coordination.ids import id_text
from penstock.coordination.image import ClusterImage, ImageDelta, Topic
from penstock.coordination.nodes import PartitionState, Removed, TopicRecord
from penstock.coordination.producer_id_blocks import take_producer_id_block
from penstock.coordination.registration import BrokerRegistration, Life, encode_broker, encode_life
from penstock.coordination.tree import (
    Change,
    Check,
    ConflictError,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    FeedGapError,
    Operation,
    Set,
    Tree,
)
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

SECRET_BYTES = 32
# Ids Kafka keeps for itself: "no id" and its metadata log.
_RESERVED_IDS = {bytes(16), bytes(15) + b"\x01"}

# How long a broker that cannot reach the store rests before it asks for changes again.
_RECONNECT_SECONDS = 0.1
# A registration may find that the old one vanishes under its hands, once or twice.
_REGISTRATIONS_MAX = 10

# A partition: the topic's id and the number.
PartitionKey = tuple[bytes, int]
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
        self.guard: Callable[[], Sequence[Operation]] = tuple
        self._turn = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []  # for the next change of the image
        self.image = ClusterImage()

    async def load(self) -> ClusterImage:
        """Read everything; the first one ever also lays the ground and names the cluster."""
        if not self.image.cluster_id:
            await writes.lay_ground(self._tree, self.random_id, partial(self._random.randbytes, SECRET_BYTES))
        await self._reload()
        return self.image

    @property
    def tree(self) -> Tree:
        return self._tree

    def _tell(self, delta: ImageDelta) -> None:
        self._listener(delta)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something holds that follows from the image; False when it does not in that time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    change = asyncio.get_running_loop().create_future()
                    self._waiting.append(change)
                    await change
        except TimeoutError:
            return condition()
        return True

    def attach(self, tree: Tree) -> None:
        """Go on in another session; the image stays as it was until the next `load` or `follow`."""
        self._tree = tree

    async def follow(self) -> None:
        """Keep the image current with what others write, until cancelled or the session is over."""
        while True:
            try:
                async for change in self._tree.changes(self.image.number):
                    self._tell(self.image.apply(change))
            except FeedGapError:
                await self._reload()
            except ConnectionLostError:
                await asyncio.sleep(_RECONNECT_SECONDS)

    def random_id(self) -> bytes:
        while True:
            sixteen = self._random.randbytes(16)
            # A leading dash would read as an option on command lines.
            if sixteen not in _RESERVED_IDS and not id_text(sixteen).startswith("-"):
                return sixteen

    # -- topics --

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        """Few of them in one multi, each whole in any case."""
        async with self._turn:
            for new in wanted:
                if new.name in self.image.topics:
                    raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
            topics = [
                (new.name, TopicRecord(self.random_id(), len(new.partitions), new.configs), new.partitions)
                for new in wanted
            ]
            await self._write_in_parts(writes.topic_creations(topics))
            return [self.image.topics[new.name] for new in wanted]

    async def delete_topic(self, name: str, topic_id: bytes | None = None) -> Topic:
        async with self._turn:
            topic = self._topic(name, topic_id)
            numbers = self.image.partition_numbers(topic.id)
            await self._write_in_parts(writes.topic_deletion(topic, numbers))
            return topic

    async def create_partitions(self, name: str, added: Sequence[PartitionState]) -> Topic:
        """The topic's count goes in the last part, so partitions are seen all at once."""
        async with self._turn:
            topic = self._topic(name)
            count = len(topic.partitions)
            # Left over from an attempt that never got as far as the count.
            stale = [number for number in self.image.partition_numbers(topic.id) if number >= count]
            await self._write_in_parts(writes.topic_growth(topic, stale, added), [writes.is_alive(topic.id)])
            return self._topic(name)

    async def drop_partitions(
        self, planned: Topic, gone: Mapping[int, Removed], configs: Mapping[str, str], checks: Sequence[Check]
    ) -> None:
        """Let these, the last partitions, go. ConflictError when any of them is not as planned."""
        async with self._turn:
            shrunk = writes.topic_shrinkage(planned, gone, configs)
            await self._write([*self.guard(), *checks, writes.is_alive(planned.id), *shrunk])

    async def alter_topic_configs(self, name: str, alter: Alter, topic_id: bytes | None = None) -> Topic:
        """`alter` is given the overrides in force and returns those to be; what it raises ends the matter."""
        async with self._turn:
            topic = self._topic(name, topic_id)
            write = writes.topic_configs(topic, alter(topic.configs))
            await self._write([writes.is_alive(topic.id), write])
            return self._topic(name)

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        return await self.alter_topic_configs(name, lambda _: configs)

    async def rewrite_partitions(
        self,
        change: Callable[[ClusterImage], tuple[Mapping[PartitionKey, PartitionState], Sequence[Check]]],
    ) -> None:
        """Write what `change` makes of the image as it is when the turn has come, with the checks it asks for."""
        async with self._turn:
            states, checks = change(self.image)
            await self._write_in_parts(writes.partition_updates(states), checks)

    async def sweep_orphans(self) -> int:
        """Remove partitions no topic owns. For the one process that writes topics, when it begins to."""
        async with self._turn:
            orphans = self.image.orphans()
            for topic_id in orphans:
                await self._write_in_parts(
                    writes.partition_deletions(topic_id, self.image.partition_numbers(topic_id))
                )
            return len(orphans)

    # -- brokers --

    async def register_broker(self, broker: BrokerRegistration, *, clean: bool = True) -> BrokerRegistration:
        """Announce a broker for the length of this session; its epoch is in what is returned.

        The same data directory come back replaces its own stale registration; another one is refused. A process that
        did not begin `clean` stays unsettled until the controller has dealt with what it may have lost, whatever
        sessions and processes follow meanwhile.
        """
        async with self._turn:
            for _ in range(_REGISTRATIONS_MAX):
                operations = await writes.registration(self._tree, broker, clean=clean)
                try:
                    change = await self._write(operations)
                except ConflictError:
                    continue  # the old session ended, or the controller wrote, in between
                return replace(broker, epoch=change.number)
        raise CoordinationError(
            f"broker {broker.id} cannot be registered: others write to its place all the time"
        )

    async def announce_stop(self, broker: int) -> None:
        """Tell the controller that this broker is about to leave. Without effect on one that is not registered."""
        async with self._turn:
            registered = self.image.brokers.get(broker)
            if registered is not None:
                data = encode_broker(replace(registered, stopping=True))
                await self._write([Set(nodes.broker_path(broker), data)])

    async def expel(self, broker: BrokerRegistration) -> bool:
        """This very process is gone: take back what its session still holds. False: it is back, or was expelled."""
        async with self._turn:
            operations = writes.expulsion(self.image, broker)
            with suppress(ConflictError):
                if operations:
                    await self._write(operations)
                    return True
            return False

    async def settle(self, broker: int, life: Life) -> None:
        """For the controller: what this life may have lost is dealt with."""
        async with self._turn:
            data = encode_life(Life(life.incarnation, settled=True))
            await self._write([*self.guard(), Set(nodes.life_path(broker), data, life.version)])

    async def forget_broker(self, broker: int, life: Life) -> None:
        """For the controller: this broker is not expected back. ConflictError when it is there after all."""
        async with self._turn:
            operations: list[Operation] = [*self.guard(), Delete(nodes.life_path(broker), life.version)]
            if broker in self.image.broker_configs:
                operations.append(Delete(nodes.broker_configs_path(broker)))
            await self._write(operations)

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
        block, change = await take_producer_id_block(self._tree)
        await self._absorb(change)
        return block

    # -- writing --

    def _topic(self, name: str, topic_id: bytes | None = None) -> Topic:
        """With an id, that one or none: while somebody waited for its turn the name may have become another topic's."""
        topic = self.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        if topic_id is not None and topic.id != topic_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' was deleted by others.")
        return topic

    async def _write_in_parts(self, operations: Iterable[Operation], checks: Sequence[Check] = ()) -> None:
        """For what only the controller writes."""
        for part in writes.in_parts(operations, checks):
            await self._write([*self.guard(), *checks, *part])

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
            self._tell(self.image.apply(change))
        elif change.number > self.image.number:
            await self._catch_up(change.number)

    async def _reload(self) -> None:
        snapshot = await self._tree.snapshot()
        self.image.check_cluster(snapshot)
        if snapshot.number >= self.image.number:  # while it was on its way, the feed may have overtaken it
            self._tell(self.image.replace(snapshot))

    async def _catch_up(self, number: int) -> None:
        """Others wrote in between, or a write of ours was cancelled before the image had it."""
        try:
            async for change in self._tree.changes(self.image.number):
                self._tell(self.image.apply(change))
                if self.image.number >= number:
                    return
        except FeedGapError:
            await self._reload()
