"""Which partitions this broker serves: what the metadata says, made true on this disk.

`reconcile` compares the two and opens, adds, reconfigures or discards what differs, and gives each replica its role
(`roles`). It is called after every change of the metadata and may be called at any time; doing so twice changes
nothing.
"""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.image import ClusterImage
from penstock.coordination.image import Topic as TopicImage
from penstock.core.errors import PenstockError, StorageError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.jobs import Jobs
from penstock.core.lease import Work
from penstock.core.turns import give_way
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.hosting import log_opening
from penstock.services.hosting.log_reopening import LogReopening
from penstock.services.hosting.removal import Removal
from penstock.services.hosting.roles import Roles, is_earlier
from penstock.services.maintenance.archive_progress import PROGRESS, ProgressKeeper, is_overstated
from penstock.services.relay.retired import register_retired
from penstock.storage.data_dir import DataDir
from penstock.storage.high_watermarks import HighWatermarks, Mark
from penstock.storage.log import Log
from penstock.storage.recovered import Recovered
from penstock.storage.replicated import end_at

logger = logging.getLogger(__name__)


class Hosting:
    def __init__(
        self,
        data_dir: DataDir,
        table: PartitionTable,
        group_commit: GroupCommit,
        image: ClusterImage,
        config: LiveConfig,
        jobs: Jobs,
        progress: ProgressKeeper,
        node: int,
        roles: Roles,
    ) -> None:
        self._data_dir = data_dir
        self._table = table
        self._group_commit = group_commit
        self._image = image
        self._config = config
        self._jobs = jobs
        self._progress = progress
        self._node = node
        self._roles = roles
        self.removal = Removal(data_dir, table, jobs, roles)
        self._reopening = LogReopening(data_dir, image, config, jobs, progress, node)
        self._marks = HighWatermarks(data_dir.files, data_dir.path)
        self._hosted: dict[bytes, TopicImage] = {}  # as they were when they were last made true
        self._stale = False  # whether roles must be looked at although no topic changed
        self._turn = asyncio.Lock()
        self._unfinished = False  # whether some partition could not be opened (a full disk, a broken one)
        self._not_seen: set[tuple[bytes, int]] = set()  # others rely on them; the start could not open them
        self.recovered_bytes = 0
        self.shortened = 0  # logs that lack what was durable in them
        # False: some log may lack what others take it to have. A replica that is whole must not follow it.
        self.is_whole = True

    async def open_missing(self) -> None:
        """Try again what could not be opened: the partitions of a topic created while the disk was full."""
        if self._unfinished:
            await self.reconcile()

    async def reconcile(self) -> None:
        async with self._turn:
            self._unfinished = False
            for topic in self._table.all_topics():
                image = self._image.topics.get(topic.name)
                if image is None or image.id != topic.id:
                    self._hosted.pop(topic.id, None)
                    await self.removal.discard(topic)
            everything, self._stale = self._stale, False
            for image in self._image.stored_topics():
                if everything or self._hosted.get(image.id) is not image:
                    await self._host(image)

    def look_again(self) -> None:
        """What a replica may be depends on more than its topic, and that has changed: settle it in the next round."""
        self._stale = True

    def settings_changed(self, config: BrokerConfig) -> None:
        """The broker's own settings changed, and with them what topics inherit."""
        resolved: dict[tuple[tuple[str, str], ...], TopicConfig] = {}  # most topics are configured alike
        for topic in self._table.all_topics():
            overrides = topic.config.overrides
            key = tuple(overrides.items())
            if key not in resolved:
                resolved[key] = TopicConfig.in_force(overrides, config)
            topic.configure(resolved[key])

    async def _host(self, image: TopicImage) -> None:
        topic = self._table.by_id.get(image.id)
        config = topic.config if topic is not None else None
        if config is None or config.overrides != image.configs:
            config = TopicConfig.in_force(image.configs, self._config.now)
            if topic is not None:
                topic.configure(config)
        wanted = [index for index, state in enumerate(image.partitions) if self._node in state.replicas]
        if topic is not None:
            await self.removal.drop(topic, [index for index in wanted if _is_earlier(topic, image, index)])
        missing = [index for index in wanted if topic is None or index not in topic.partitions]
        opened: dict[int, Partition] = {}
        for at in range(0, len(missing), log_opening.OPENED_AT_ONCE):
            opened |= await self._open(image, config, missing[at : at + log_opening.OPENED_AT_ONCE])
        if await self._disbelieve_archive(image, config, opened):
            image = self._image.topics_by_id.get(image.id, image)
        if topic is not None:
            await self.removal.drop(topic, sorted({*topic.partitions} - {*wanted}))
        if opened or topic is None:  # not as they were before: nobody told these of new settings
            config = TopicConfig.in_force(image.configs, self._config.now)
        if topic is None:
            internal = image.name in INTERNAL_TOPICS
            topic = Topic(
                image.name, image.id, config, opened, is_internal=internal, count=len(image.partitions)
            )
            self._table.add(topic)
        else:
            topic.partitions.update(opened)
            topic.count = len(image.partitions)
            if opened or topic.config.overrides != config.overrides:
                topic.configure(config)
        register_retired(self._table.routes, image)
        doubtful = await self._doubtful(image, topic)
        for number, partition in enumerate(list(topic.partitions.values())):
            await give_way(number)
            if partition.index not in doubtful and not await self._give_role(topic, partition):
                doubtful.add(partition.index)
        if len(missing) == len(opened) and not doubtful:
            self._hosted[image.id] = image

    async def _give_role(self, topic: Topic, partition: Partition) -> bool:
        """False: its log could not be read, and the next round tries it again; the others go on."""
        try:
            await self._roles.assume(topic, partition, partial(self._may_begin, topic, partition))
        except StorageError as error:
            logger.error("partition %s-%d has no role yet: %s", topic.name, partition.index, error)  # noqa: TRY400
            self._unfinished = True
            return False
        return True

    async def _disbelieve_archive(
        self, image: TopicImage, config: TopicConfig, opened: dict[int, Partition]
    ) -> bool:
        """Whether logs that lost what an archive already had made its progress go back, before they serve."""
        if config.archive_progress is None:
            return False
        parted = {
            index: partition.log
            for index, partition in opened.items()
            # Of several replicas, one that lags is no reason: what it lacks comes back from its leader.
            if len(image.partitions[index].replicas) == 1 and is_overstated(image.id, config, partition)
        }
        if not parted:
            return False
        try:
            await self._progress.lower(image.name, image.id, parted)
        except PenstockError as error:
            logger.error("%s: the archive's progress cannot be lowered: %s", image.name, error)  # noqa: TRY400
            self._unfinished = True
            for index in parted:
                opened.pop(index).log.close()
            return False
        return True

    async def _doubtful(self, image: TopicImage, topic: Topic) -> set[int]:
        """Which replicas must not begin to lead: archived is more than their logs have, and that stays written down.

        So it is after an unclean election: what was archived of the old leader says nothing about this one's records.
        """
        if topic.config.archive_progress is None or not self._roles.may_lead():
            return set()
        parted = {
            index: partition.log
            for index, partition in topic.partitions.items()
            if index < len(image.partitions)
            and image.partitions[index].leader == self._node
            and is_overstated(image.id, topic.config, partition)
        }
        try:
            if parted:
                await self._progress.lower(image.name, image.id, parted)
                now = self._image.topics_by_id.get(image.id, image)
                topic.configure(TopicConfig.in_force(now.configs, self._config.now))
        except PenstockError as error:
            logger.error("%s: the archive's progress cannot be lowered: %s", image.name, error)  # noqa: TRY400
            self._unfinished = True
            return {index for index in parted if not topic.partitions[index].is_leader}
        return set()

    def _may_begin(self, topic: Topic, partition: Partition) -> bool:
        """Not if it was named leader after `_doubtful` looked: then the next round looks at it first."""
        image = self._image.topics_by_id.get(topic.id)
        if image is None or PROGRESS not in image.configs:
            return True
        config = topic.config
        if config.overrides != image.configs:
            config = TopicConfig.in_force(image.configs, self._config.now)
        if is_overstated(image.id, config, partition):
            self._stale = self._unfinished = True
            return False
        return True

    async def _open(self, image: TopicImage, config: TopicConfig, indexes: list[int]) -> dict[int, Partition]:
        vouched = self._data_dir.was_clean and not self._roles.may_play()
        expected = {index for index in indexes if self._is_expected(image, index)}
        opening = partial(log_opening.open_all, self._data_dir, image, config, indexes)
        job = partial(opening, node=self._node, vouched=vouched, expected=expected)
        partitions = {}
        for number, (index, recovered) in enumerate((await self._jobs.run(job)).items()):
            await give_way(number)
            if isinstance(recovered, StorageError):
                self._not_opened(image, index, recovered)
                continue
            self.recovered_bytes += recovered.scanned_bytes
            self.shortened += recovered.lost is not None
            is_counted = self._counts_as_whole(image, index)
            log_opening.tell(image.name, index, recovered, vouched=is_counted and self._data_dir.was_clean)
            self.is_whole = self.is_whole and not (is_counted and log_opening.is_in_doubt(recovered))
            try:
                partitions[index] = self._replica(image, config, index, recovered)
            except StorageError as error:  # it was read again, for its high watermark
                recovered.log.close()
                self._not_opened(image, index, error)
        self._not_seen -= {(image.id, index) for index in partitions}
        return partitions

    def _not_opened(self, image: TopicImage, index: int, error: StorageError) -> None:
        logger.error("partition %s-%d cannot be opened: %s", image.name, index, error)
        self._unfinished = True
        # What it lacks may show too late: when it is opened, this broker may lead with it.
        self.is_whole = self.is_whole and not self._counts_as_whole(image, index)
        if self._is_expected(image, index):
            self._not_seen.add((image.id, index))

    def _is_expected(self, image: TopicImage, index: int) -> bool:
        """Whether others rely on there being a log. Not for a topic that was made while this broker runs."""
        is_old = not self._roles.may_play() or (image.id, index) in self._not_seen
        return is_old and log_opening.is_relied_on(image.partitions[index], self._node)

    def _counts_as_whole(self, image: TopicImage, index: int) -> bool:
        """At a start: whether others take what is here for all there is. Later, a log may well be new."""
        state = image.partitions[index]
        return not self._roles.may_play() and self._node in (*state.isr, *state.eligible)

    def _replica(self, image: TopicImage, config: TopicConfig, index: int, recovered: Recovered) -> Partition:
        state, committed = image.partitions[index], None
        if len(state.replicas) > 1:
            known = self._marks.of(image.id, index).committed(recovered.log.epochs)
            offset = min(max(known, recovered.log.start_offset), recovered.log.end_offset)
            committed = end_at(recovered.log, offset)
        partition = Partition(
            image.name,
            image.id,
            index,
            recovered.log,
            state.leader_epoch,
            self._group_commit,
            sync_before_ack=config.syncs_before_ack(state.assured),
            committed=committed,
        )
        partition.is_leader = False  # until it is told so
        partition.gap = image.removed.get(index)
        partition.replica_count, partition.assured_count = len(state.replicas), state.assured
        recovered.log.producers.join(self._table.producers)
        return partition

    async def save_high_watermarks(self) -> None:
        """How much of each replicated log is known to be committed, for the next start."""
        found = [partition for partition in self._table.partitions() if partition.replica_count > 1]
        marks = {(part.topic_id, part.index): Mark.of(part.high_watermark, part.log.epochs) for part in found}
        if marks:
            await self._jobs.run(partial(self._marks.save, marks))

    def failed_logs(self) -> set[Log]:
        return {partition.log for partition in self._table.partitions() if partition.log.failed}

    async def reopen_failed(self, logs: Collection[Log]) -> None:
        """Open logs again that an I/O error took offline.

        Only `logs`, whose failure was told: another one may be taken for whole, and come back shorter.
        """
        async with self._turn:
            for topic in self._table.stored_topics():
                for partition in list(topic.partitions.values()):
                    if partition.log in logs:
                        await self._reopen(topic, partition)

    async def _reopen(self, topic: Topic, partition: Partition) -> None:
        image = self._image.topics_by_id.get(topic.id)
        if image is None or partition.index >= len(image.partitions) or is_earlier(partition, image):
            return  # the next round takes it out of service
        # Before anything is opened: the log that failed may still be led, or followed by an answer that is being taken
        # over, which would change the files of the new one.
        await self._roles.stand_aside(topic, partition)
        self._hosted.pop(topic.id, None)
        hold = await partition.lease.get(Work.CUT)
        if hold is not None:
            with hold:
                await self._reopening.reopen(topic, partition, image, hold)


def _is_earlier(topic: Topic, image: TopicImage, index: int) -> bool:
    """Whether what is open here is of a partition that was removed, and made anew before it was noticed."""
    known = topic.partitions.get(index)
    return known is not None and is_earlier(known, image)
