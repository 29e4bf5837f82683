"""What of one kind this broker coordinates: a shard for each partition of the kind's topic that it leads.

The topic is made when somebody first asks for a coordinator. A shard is loaded before it serves; one that went offline
is loaded again once its log can be read.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Generic

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.coordination.catching_up import CatchUp
from penstock.coordination.image import ClusterImage, ImageDelta
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.tasks import endless
from penstock.core.turns import give_way
from penstock.groups.decision import KnownTopic
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.services.coordinator.loading import load
from penstock.services.coordinator.machine import CoordinatorKind, SettingsT
from penstock.services.coordinator.shard import MachineT, Shard, Status
from penstock.services.topics.service import TopicService
from penstock.services.turns import Turns
from penstock.services.writer import Writer

logger = logging.getLogger(__name__)

# How long a shard rests between two attempts to load it.
_RETRY_SECONDS = 1.0
# How long the metadata may take to be what it is elsewhere; then the shard rests, too.
_CATCH_UP_SECONDS = 5.0
# As long as clients wait for FindCoordinator.
_CREATION_MS = 30_000


class CoordinatorRuntime(Generic[MachineT, SettingsT]):
    def __init__(
        self,
        kind: CoordinatorKind[MachineT, SettingsT],
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        clock: Clock,
        rng: random.Random,
        table: PartitionTable,
        writer: Writer,
        topics: TopicService,
        image: ClusterImage,
        catch_up: CatchUp,
        config: LiveConfig,
    ) -> None:
        self._kind = kind
        self._topic_key = kind.topic.encode()
        self._partition_of = kind.partition_of  # at hand: every request asks
        self._loop = loop
        self._executor = executor
        self._clock = clock
        self.rng = rng
        self._table = table
        self._writer = writer
        self._topics = topics
        self._image = image
        self._catch_up = catch_up
        self.config = config
        self._shards: dict[int, Shard[MachineT, SettingsT]] = {}
        self._work = asyncio.Event()  # some shard waits to be loaded
        self._creating = asyncio.Lock()
        self.in_turns = Turns(loop).take
        self.damaged_records = 0

    def settings_changed(self, _config: BrokerConfig) -> None:
        """After the table's topics, which know what they inherit by then."""
        for shard in self._shards.values():
            shard.settings = self._settings(shard.partition)

    def close(self) -> None:
        """The broker stops: nothing is written any more, and nobody waits in vain."""
        for shard in self._shards.values():
            shard.go_offline("the broker stops", planned=True)

    # -- finding ---------------------------------------------------------------------------------------------

    def shard_of(self, key: str) -> Shard[MachineT, SettingsT]:
        """The one that coordinates it; ApiError when there is none, or it is not ready."""
        topic = self._table.by_name.get(self._topic_key)
        # Of all there are, opened or not: nothing must ever be looked for in another one's place.
        partition = None if topic is None else topic.led.get(self._partition_of(key, topic.count))
        if partition is None:
            raise ApiError(self._absence(key))
        shard = self._shard(partition)
        shard.check_active()
        return shard

    def shard_at(self, partition: Partition) -> Shard[MachineT, SettingsT]:
        """Of a partition of the topic that is led here; ApiError when it is not ready."""
        shard = self._shard(partition)
        shard.check_active()
        return shard

    def _absence(self, key: str) -> ErrorCode:
        """Why it is not coordinated here: this broker may be about to, and then nobody need look elsewhere."""
        topic = self._image.topics.get(self._kind.topic)
        if topic is not None:
            state = topic.partitions[self._partition_of(key, len(topic.partitions))]
            if state.leader == self.config.now.node_id:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def shards(self) -> Iterator[Shard[MachineT, SettingsT]]:
        """All there are, whatever their state."""
        topic = self._table.by_name.get(self._topic_key)
        if topic is not None:
            for index in list(topic.led):
                yield self._shard(topic.led[index])

    def begun(self) -> list[Shard[MachineT, SettingsT]]:
        """Those that somebody has asked for already; may be asked from a thread."""
        return list(self._shards.values())

    @property
    def unavailable(self) -> int:
        """How many shards are not in service; may be asked from a thread."""
        return sum(shard.status is not Status.ACTIVE for shard in self.begun())

    def _shard(self, partition: Partition) -> Shard[MachineT, SettingsT]:
        shard = self._shards.get(partition.index)
        if shard is None or shard.partition is not partition:
            if shard is not None:
                shard.go_offline("the topic was deleted", planned=True)
            shard = self._shards[partition.index] = Shard(
                self._kind,
                partition,
                self._writer,
                self._loop,
                self._clock,
                self._settings(partition),
                self._kind.commit_timeout_ms(self.config.now) / 1000,
                self._work.set,
            )
            if partition.log.start_offset == partition.high_watermark == partition.log.end_offset:
                shard.go_active()  # nothing to read
            else:
                self._work.set()
        return shard

    @property
    def subjects_bytes(self) -> int:
        """Of `size_bytes`, what comes and goes with those who take part."""
        return sum(shard.state.subjects_bytes for shard in self._shards.values())

    @property
    def size_bytes(self) -> int:
        """About what all that is coordinated here takes in memory."""
        return sum(shard.state.size_bytes + shard.state.subjects_bytes for shard in self._shards.values())

    def role_changed(self, partition: Partition) -> None:
        """This broker began or ceased to lead a partition; who coordinates what is in it is decided by that alone."""
        if partition.topic != self._kind.topic:
            return
        shard = self._shards.get(partition.index)
        if shard is not None and (not partition.is_leader or shard.epoch != partition.leader_epoch):
            del self._shards[partition.index]
            shard.go_offline("another broker leads the partition", planned=True)
        self._work.set()

    def _settings(self, partition: Partition) -> SettingsT:
        return self._kind.settings(self.config.now, self._table.by_id.get(partition.topic_id))

    # -- the topic -------------------------------------------------------------------------------------------

    @property
    def has_topic(self) -> bool:
        return self._topic_key in self._table.by_name

    async def create_topic(self, brokers: int) -> None:
        """Make the topic where it is missing; ApiError when it cannot be."""
        async with self._creating:
            if self.has_topic:
                return
            config = self.config.now
            wanted = self._kind.wanted_topic(config, brokers)
            created = (await self._topics.create([wanted], config, timeout_ms=_CREATION_MS))[wanted.name]
            if isinstance(created, ApiError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("%s cannot be created: %s", wanted.name, created)
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, created.message)

    def image_changed(self, delta: ImageDelta) -> None:
        """Topics were made, have more or fewer partitions, or are gone.

        Shards that are not in service get to know when they are loaded. The others hear of it in turns, since there
        may be much to store: whoever reads meanwhile looks at the topics, too (`Shard.unheard`).
        """
        names = [topic.name for topic in (*delta.topics_gone, *delta.topics_resized)]
        if not names:
            return
        for shard in self._shards.values():
            if shard.status is not Status.ACTIVE:
                continue
            if shard.unheard is None:
                shard.unheard = set(names)
                self.in_turns(self._hear(shard, shard.state))
            else:
                shard.unheard.update(names)

    def _hear(
        self, shard: Shard[MachineT, SettingsT], state: MachineT, *, of_all: bool = False
    ) -> Iterator[None]:
        """What changes meanwhile is heard of in the next round."""
        while shard.state is state and (of_all or shard.unheard):
            if not shard.may_store():
                # Until then whoever reads looks at the topics, as all the time.
                again = self._hear(shard, state, of_all=of_all)
                self._loop.call_later(_RETRY_SECONDS, self.in_turns, again)
                return
            names = None if of_all else shard.unheard
            of_all, shard.unheard = False, set()
            yield from shard.store_in_turns(state, partial(state.hear_of_topics, self.known_topic, names))
        if shard.state is state:
            shard.unheard = None

    def known_topic(self, name: str) -> KnownTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else KnownTopic(topic.id, len(topic.partitions), topic.removed)

    # -- by the clock ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: shards that wait for it are loaded."""
        await endless(self._load_shards)

    async def _load_shards(self) -> None:
        while True:
            self._work.clear()
            # Those that must hear of the latest metadata first come last: nobody else waits for a store that is away.
            waiting = [shard for shard in list(self.shards()) if not await self._loaded(shard)]
            if waiting and await self._catch_up(_CATCH_UP_SECONDS):
                for shard in waiting:
                    await self._loaded(shard, caught_up=True)
            offline = any(shard.status is not Status.ACTIVE for shard in self.shards())
            try:
                async with asyncio.timeout(_RETRY_SECONDS if offline else None):
                    await self._work.wait()
            except TimeoutError:
                pass

    async def _loaded(self, shard: Shard[MachineT, SettingsT], *, caught_up: bool = False) -> bool:
        """False: it cannot be told yet what of it is about topics that are gone."""
        done = True
        if shard.status is Status.OFFLINE and not shard.partition.log.failed:
            if self._loop.time() < shard.tried_at + _RETRY_SECONDS:
                return True  # it rests: what it has to store itself may be what fails, on a full disk
            shard.restart()
        if self._shards.get(shard.partition.index) is shard and shard.status is Status.LOADING:
            try:
                done = await self._load(shard, caught_up=caught_up)
            except Exception as error:
                shard.fail(error)  # it waits for somebody who mends it; all others do not
            shard.tried_at = self._loop.time()
        return done

    async def _load(self, shard: Shard[MachineT, SettingsT], *, caught_up: bool) -> bool:
        partition, source, state = shard.partition, shard.partition.log, self._kind.machine()
        if partition.high_watermark != source.end_offset:
            return True  # what was written before it went offline may still be committed: the next look finds out
        try:
            report = await load(partition, state, self._executor, self._kind.load_bytes(self.config.now))
        except StorageError as error:
            shard.go_offline(f"its log cannot be read: {error}")
            return True
        # It was written under metadata that may be newer than ours: what is not known here may be yet to come.
        if await self._heard_of_less(state) and not caught_up:
            return False
        if self._shards.get(partition.index) is not shard:
            return True  # no longer ours
        if shard.status is not Status.LOADING or partition.log is not source or source.failed:
            shard.go_offline("its log failed while it was read")
            return True
        self.damaged_records += report.damaged
        shard.state = state
        shard.go_active()
        self.in_turns(shard.begin_in_turns(state))
        shard.unheard = set()
        self.in_turns(self._hear(shard, state, of_all=True))
        if report.records or report.damaged:
            logger.info(
                "%s-%d: %d %s from %d records, %d of other kinds, %d damaged",
                partition.topic,
                partition.index,
                sum(1 for _ in state.subjects()),
                self._kind.subjects,
                report.records,
                report.skipped,
                report.damaged,
            )
        return True

    async def _heard_of_less(self, state: MachineT) -> bool:
        """Whether a state that is not in service yet is also about topics that are not known here."""
        found = False
        for number, records in enumerate(state.hear_of_topics(self.known_topic)):
            found = found or bool(records)
            await give_way(number)
        return found
