"""What a replica here is to its partition: leader, follower, or neither; as the metadata says, never backwards.

A broker that has just started leads nothing before its registration is settled: until then the metadata may still name
it as the leader that it was before it crashed. Before it is registered it follows nobody either: a start that comes to
nothing has changed nothing.
"""

import asyncio
from collections.abc import Callable

from penstock.coordination.image import ClusterImage
from penstock.coordination.image import Topic as TopicImage
from penstock.coordination.nodes import PartitionState
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.replication.end_gap import close_end_gap
from penstock.replication.fetchers import Fetchers
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.replication.retirement import lead_anew, retire, seal, thaw
from penstock.replication.table import Topic
from penstock.services.hosting.log_opening import is_relied_on
from penstock.storage.incomplete import forget_incomplete

NOBODY = -1


class Roles:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        node: int,
        image: ClusterImage,
        fetchers: Fetchers,
        keeper: IsrKeeper,
        may_play: Callable[[], bool],
        may_lead: Callable[[], bool],
        changed: Callable[[Partition], None],
        *,
        tells_at_once: bool,
    ) -> None:
        """`may_play`: whether replicas may have any role yet. `changed` hears of each that began or ceased to lead;
        the last is for `Leading`."""
        self._loop = loop
        self._clock = clock
        self._node = node
        self._image = image
        self._fetchers = fetchers
        self._keeper = keeper
        self.may_play = may_play
        self.may_lead = may_lead
        self._changed = changed
        self.tells_at_once = tells_at_once
        self._following: dict[Partition, tuple[int, int]] = {}  # (leader, epoch)

    async def assume(self, topic: Topic, partition: Partition, may_begin: Callable[[], bool]) -> None:
        """Make the partition's role what the metadata says now; `may_begin` to lead is asked when that is about to be.

        If it may not, it keeps its role: who was asked knows of a later state of the topic, and comes again with that.
        """
        while self.may_play():
            state = self._state(partition)
            if state is None or state.leader_epoch < partition.leader_epoch:
                return
            self._retire(partition, state)
            if state.leader == self._node and self._may_lead(partition, state):
                if self._leads_already(partition, state):
                    self._learn(topic, partition, state)
                    return
                if not partition.is_leader:
                    partition.leader_epoch = (
                        state.leader_epoch
                    )  # nothing is cut any more by what the last one said
                await self.let_go(partition)
                if self._state(partition) == state and self._may_lead(partition, state):
                    if may_begin():
                        self._lead(topic, partition, state)
                    return
            else:
                if not partition.is_leader and self._following.get(partition) == _place(state, self._node):
                    partition.leader_epoch = state.leader_epoch
                    self._follow_count(topic, partition, state)
                    return
                self._stand_back(topic, partition, state.leader_epoch)
                await self.let_go(partition)
                if self._state(partition) == state:
                    self._follow(topic, partition, state)
                    return

    def _retire(self, partition: Partition, state: PartitionState) -> None:
        """What readers may see is limited, or not, before anybody is served by what the metadata says."""
        known = partition.retirement
        if state.retirement is not None:
            if known is None or known.epoch is not None:
                retire(partition, state.retirement.offset, None, state.retirement.written_ms)
                if self._leads_already(partition, state):
                    self._changed(partition)
            else:
                # A follower hears of writes only so; it may lead one day, and must not think that nobody wrote.
                known.written_ms = max(known.written_ms, state.retirement.written_ms)
        elif known is not None and known.epoch != state.leader_epoch:
            thaw(partition)

    def _stand_back(self, topic: Topic, partition: Partition, epoch: int) -> None:
        was_leader = partition.is_leader
        partition.stand_back(epoch)
        topic.role_changed(partition)
        partition.wake_readers()
        if was_leader:
            self._changed(partition)

    async def leave(self, topic: Topic, partition: Partition) -> None:
        """It is no replica any longer, and is on the list of the topic's partitions no more."""
        state = self._state(partition)
        self._stand_back(topic, partition, partition.leader_epoch if state is None else state.leader_epoch)
        await self.let_go(partition)

    async def stand_aside(self, topic: Topic, partition: Partition) -> None:
        """Its log is to be opened again: it has no role until the metadata was looked at once more.

        What it knows of its followers, and the epoch that it led, are of the log that failed.
        """
        self.stand_back(topic, partition)
        await self.let_go(partition)

    def stand_back(self, topic: Topic, partition: Partition) -> None:
        """At once, whatever the metadata says."""
        self._stand_back(topic, partition, partition.leader_epoch)

    async def let_go(self, partition: Partition) -> None:
        self._following.pop(partition, None)
        await self._fetchers.release(partition)

    def _state(self, partition: Partition) -> PartitionState | None:
        image = self._image.topics_by_id.get(partition.topic_id)
        if image is None or partition.index >= len(image.partitions):
            return None
        if is_earlier(partition, image):
            return None  # the metadata speaks of another one by now; the next round opens that
        return image.partitions[partition.index]

    def _may_lead(self, partition: Partition, state: PartitionState) -> bool:
        """Nobody begins to with a log that is offline: followers would copy, and be in sync with, what may be gone when
        it is opened again. The only replica may, for those who read."""
        is_certain = not partition.log.failed or len(state.replicas) == 1
        return self.may_lead() and (is_certain or self._leads_already(partition, state))

    def _leads_already(self, partition: Partition, state: PartitionState) -> bool:
        if not partition.is_leader or partition.leader_epoch != state.leader_epoch:
            return False
        return (partition.leading is not None) == (len(state.replicas) > 1)

    def _learn(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        self._follow_count(topic, partition, state)
        leading = partition.leading
        before = state.isr if leading is None else leading.state.isr
        if leading is not None and leading.committed(state):
            self._keeper.changed(before, state.isr)
            partition.advance()
            if leading.is_short:
                partition.turn_away(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few replicas are in sync to commit it"
                )
            self._keeper.consider(partition)

    def _lead(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        config = topic.config
        self._set_replicas(topic, partition, state)
        leading = None
        if len(state.replicas) > 1:
            end = partition.log.end_offset
            partition.log.cleaned = partition.log.cleaned.leading(end)
            leading = Leading(self._node, state, config.min_insync_replicas, end, self._loop.time())
            leading.lag_records_max = config.replica_lag_max_messages
            leading.tells_at_once = self.tells_at_once
        try:
            if partition.log.is_incomplete:
                forget_incomplete(partition.log)
            partition.lead(state.leader_epoch, leading)
        except StorageError:
            # It is tried again: nothing may be half done.
            self._stand_back(topic, partition, state.leader_epoch)
            raise
        if partition.retirement is not None:
            lead_anew(partition)
            seal(partition)
        close_end_gap(partition, self._clock.now_ms())
        topic.role_changed(partition)
        partition.wake_readers()  # they came to a follower, or under another epoch
        self._changed(partition)
        if leading is not None:
            self._keeper.consider(partition)

    def _follow(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        self._set_replicas(topic, partition, state)
        place = _place(state, self._node)
        self._following[partition] = place
        partition.is_following = len(state.replicas) > 1
        if place[0] != NOBODY:
            self._fetchers.follow(partition, *place)

    def _set_replicas(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        partition.replica_count = len(state.replicas)
        partition.assured_count = state.assured
        self._set_standing(partition, state)
        partition.sync_before_ack = topic.config.syncs_before_ack(state.assured)

    def _follow_count(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        """The role stays, but replicas may have come or gone."""
        partition.replica_count, partition.assured_count = len(state.replicas), state.assured
        self._set_standing(partition, state)
        syncs = topic.config.syncs_before_ack(state.assured)
        if syncs != partition.sync_before_ack:
            partition.set_sync_before_ack(syncs)

    def _set_standing(self, partition: Partition, state: PartitionState) -> None:
        partition.in_sync = self._node in state.isr
        partition.may_be_asked = is_relied_on(state, self._node)


def is_earlier(partition: Partition, topic: TopicImage) -> bool:
    """Whether it is of a partition that was removed; the one that the topic has under its number was made since."""
    removed, gap = topic.removed.get(partition.index), partition.gap
    return removed is not None and (gap is None or gap.epoch < removed.epoch)


def _place(state: PartitionState, node: int) -> tuple[int, int]:
    return NOBODY if state.leader == node else state.leader, state.leader_epoch
