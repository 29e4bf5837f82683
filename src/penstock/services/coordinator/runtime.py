"""Which groups this broker coordinates: a shard for each partition of `__consumer_offsets` it leads.

The topic is made when somebody first asks for a coordinator. A shard is loaded before it serves; one that went offline
is loaded again once its log can be read. Everything that runs by the clock (loading, retention of offsets) is in `run`.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.coordination.catching_up import CatchUp
from penstock.coordination.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.tasks import endless
from penstock.groups.classic.requests import ClassicSettings
from penstock.groups.classic.states import DEAD, GroupState
from penstock.groups.partitioning import partition_of
from penstock.groups.state import CoordinatorState
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.coordinator.loading import load
from penstock.services.coordinator.shard import Shard, Status
from penstock.services.topic_names import OFFSETS_TOPIC
from penstock.services.topic_plans import WantedTopic
from penstock.services.topics import TopicService

log = logging.getLogger(__name__)

# How long a shard that cannot be loaded rests before the next attempt.
_RETRY_SECONDS = 1.0
# How long the metadata may take to be what it is elsewhere; then the shard rests, too.
_CATCH_UP_SECONDS = 5.0
# As long as clients wait for FindCoordinator.
_CREATION_MS = 30_000
# Groups looked at for expired offsets before others get their turn.
_GROUPS_AT_ONCE = 100


class CoordinatorRuntime:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        clock: Clock,
        rng: random.Random,
        table: PartitionTable,
        topics: TopicService,
        image: ClusterImage,
        catch_up: CatchUp,
        config: BrokerConfig,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._clock = clock
        self.rng = rng
        self._table = table
        self._topics = topics
        self._image = image
        self._catch_up = catch_up
        self.config = config
        self._shards: dict[int, Shard] = {}
        self._work = asyncio.Event()  # some shard waits to be loaded
        self._creating = asyncio.Lock()
        self.damaged_records = 0

    def reconfigure(self, config: BrokerConfig) -> None:
        self.config = config
        for shard in self._shards.values():
            shard.settings = self._settings(shard.partition)

    def close(self) -> None:
        """The broker stops: nothing is written any more, and nobody waits in vain."""
        for shard in self._shards.values():
            shard.go_offline("the broker stops")

    # -- finding ---------------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> Shard:
        """The one that coordinates the group; ApiError when there is none, or it is not ready."""
        topic = self._table.by_name.get(_TOPIC_KEY)
        # Of all there are, opened or not: a group must never be looked for in another one's place.
        index = -1 if topic is None else partition_of(group_id, topic.count)
        if topic is None or index not in topic.led:
            raise ApiError(self._absence(group_id))
        shard = self._shard(topic, index)
        shard.check_active()
        return shard

    def _absence(self, group_id: str) -> ErrorCode:
        """Why a group is not coordinated here: this broker may be about to, and then nobody need look elsewhere."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            state = topic.partitions[partition_of(group_id, len(topic.partitions))]
            if state.leader == self.config.node_id:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def shards(self) -> Iterator[Shard]:
        """All there are, whatever their state."""
        topic = self._table.by_name.get(_TOPIC_KEY)
        if topic is not None:
            for index in list(topic.led):
                yield self._shard(topic, index)

    def group_states(self) -> dict[str, int]:
        """How many groups are in each state, by its name in snake case; may be asked from a thread."""
        found = {state.name.lower(): 0 for state in GroupState if state is not DEAD}
        for shard in list(self._shards.values()):
            for group in list(shard.state.groups.values()):
                if group.state is not DEAD:
                    found[group.state.name.lower()] += 1
        return found

    @property
    def unavailable(self) -> int:
        """How many shards are not in service; may be asked from a thread."""
        return sum(shard.status is not Status.ACTIVE for shard in list(self._shards.values()))

    def _shard(self, topic: Topic, index: int) -> Shard:
        partition = topic.led[index]
        shard = self._shards.get(index)
        if shard is None or shard.partition is not partition:
            if shard is not None:
                shard.go_offline("the topic was deleted")
            shard = self._shards[index] = Shard(
                partition, self._loop, self._clock, self._settings(partition), self._work.set
            )
            if partition.log.start_offset == partition.committed.offset == partition.log.end_offset:
                shard.go_active()  # nothing to read
            else:
                self._work.set()
        return shard

    def role_changed(self, partition: Partition) -> None:
        """This broker began or ceased to lead a partition; whose groups those are is decided by that alone."""
        if partition.topic != OFFSETS_TOPIC:
            return
        shard = self._shards.get(partition.index)
        if shard is not None and (not partition.is_leader or shard.epoch != partition.leader_epoch):
            del self._shards[partition.index]
            shard.go_offline("another broker leads the partition")
        self._work.set()

    def _settings(self, partition: Partition) -> ClassicSettings:
        config = self.config
        topic = self._table.by_id.get(partition.topic_id)
        return ClassicSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            members_max=config.group_max_size,
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            record_bytes_max=config.message_max_bytes if topic is None else topic.config.max_message_bytes,
        )

    # -- the topic -------------------------------------------------------------------------------------------

    @property
    def has_topic(self) -> bool:
        return _TOPIC_KEY in self._table.by_name

    async def create_topic(self, brokers: int) -> None:
        """Make the topic where it is missing; ApiError when it cannot be."""
        async with self._creating:
            if self.has_topic:
                return
            config = self.config
            wanted = WantedTopic(
                OFFSETS_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                # Kafka waits for as many brokers as it was told; a single node would wait for ever.
                replication_factor=min(config.offsets_topic_replication_factor, brokers),
                configs=(
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                ),
            )
            created = (await self._topics.create([wanted], config, timeout_ms=_CREATION_MS))[OFFSETS_TOPIC]
            if isinstance(created, ApiError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("%s cannot be created: %s", OFFSETS_TOPIC, created)
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, created.message)

    def topics_gone(self, names: Sequence[str]) -> None:
        """Nobody goes on reading a topic that is gone, or its last partitions, least of all in another of its name.

        Shards that are not in service get to know when they are loaded.
        """
        for shard in self._shards.values():
            if shard.status is Status.ACTIVE:
                shard.store_decided(partial(shard.state.bind_offsets, self._known_topic, names))

    def _known_topic(self, name: str) -> tuple[bytes, int] | None:
        topic = self._image.topics.get(name)
        return None if topic is None else (topic.id, len(topic.partitions))

    # -- by the clock ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(endless(self._load_shards))
            tasks.create_task(endless(self._expire_offsets))

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

    async def _loaded(self, shard: Shard, *, caught_up: bool = False) -> bool:
        """False: it cannot be told yet which of its offsets are of topics that are gone."""
        done = True
        if shard.status is Status.OFFLINE and not shard.partition.log.failed:
            shard.restart()
        if self._shards.get(shard.partition.index) is shard and shard.status is Status.LOADING:
            try:
                done = await self._load(shard, caught_up=caught_up)
            except Exception as error:
                shard.fail(error)  # these groups wait for somebody who mends it; all others do not
            self._let_rest(shard)
        return done

    def _let_rest(self, shard: Shard) -> None:
        if shard.status is Status.OFFLINE:
            self._work.clear()  # it failed again, and asked for the next attempt by that

    async def _load(self, shard: Shard, *, caught_up: bool) -> bool:
        partition, source, state = shard.partition, shard.partition.log, CoordinatorState()
        if partition.committed.offset != source.end_offset:
            return True  # what was written before it went offline may still be committed: the next look finds out
        try:
            report = await load(partition, state, self._executor, self.config.offsets_load_buffer_size)
        except StorageError as error:
            shard.go_offline(f"its log cannot be read: {error}")
            return True
        # Offsets were committed under metadata that may be newer than ours: what is not known here may be yet to come.
        if state.bind_offsets(self._known_topic) and not caught_up:
            return False
        if self._shards.get(partition.index) is not shard:
            return True  # no longer ours
        if shard.status is not Status.LOADING or partition.log is not source or source.failed:
            shard.go_offline("its log failed while it was read")
            return True
        self.damaged_records += report.damaged
        shard.state = state
        shard.go_active()
        shard.store_decided(partial(state.bind_offsets, self._known_topic))
        if report.records or report.damaged:
            log.info(
                "%s-%d: %d groups from %d records, %d of other kinds, %d damaged",
                partition.topic,
                partition.index,
                len(state.groups),
                report.records,
                report.skipped,
                report.damaged,
            )
        return True

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Drop what nobody has used for as long as it is kept."""
        looked_at = 0
        retention_ms = self.config.offsets_retention_minutes * 60_000
        for shard in list(self._shards.values()):
            for group_id in list(shard.state.groups):
                if shard.status is not Status.ACTIVE:
                    break
                now_ms = self._clock.now_ms()
                shard.store_decided(partial(shard.state.expire_group, group_id, retention_ms, now_ms))
                looked_at += 1
                if looked_at % _GROUPS_AT_ONCE == 0:
                    await asyncio.sleep(0)


_TOPIC_KEY = OFFSETS_TOPIC.encode()
