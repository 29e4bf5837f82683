"""A log that an I/O error took offline, opened again: scanned from its recovery point, as after a crash."""

import logging
from functools import partial

from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.image import ClusterImage
from penstock.coordination.image import Topic as TopicImage
from penstock.core.errors import PenstockError, StorageError
from penstock.core.jobs import Jobs
from penstock.core.lease import Hold
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.services.hosting import log_opening
from penstock.services.maintenance.archive_progress import ProgressKeeper
from penstock.storage.data_dir import DataDir

logger = logging.getLogger(__name__)


class LogReopening:
    def __init__(
        self,
        data_dir: DataDir,
        image: ClusterImage,
        config: LiveConfig,
        jobs: Jobs,
        progress: ProgressKeeper,
        node: int,
    ) -> None:
        self._data_dir = data_dir
        self._image = image
        self._config = config
        self._jobs = jobs
        self._progress = progress
        self._node = node

    async def reopen(self, topic: Topic, partition: Partition, image: TopicImage, hold: Hold) -> None:
        """Where it cannot be opened, or lost what an archive has and that cannot be told, it stays offline."""
        index, node = partition.index, self._node
        expected = log_opening.is_relied_on(image.partitions[index], node)
        opening = partial(log_opening.open_one, self._data_dir, image, topic.config, index)
        job = partial(opening, node=node, after_failure=True, expected=expected)
        try:
            recovered = await self._jobs.run(job, hold=hold)
        except (StorageError, FileNotFoundError) as error:
            logger.warning("partition %s-%d stays offline: %s", topic.name, partition.index, error)
            return
        try:
            if self._decides_of_archive(topic, partition.index):
                # Also where all seems well: progress that was checked against the old log may be on its way.
                await self._progress.lower(topic.name, topic.id, {partition.index: recovered.log})
            partition.replace_log(recovered.log)
        except PenstockError as error:
            recovered.log.close()
            logger.warning("partition %s-%d stays offline: %s", topic.name, partition.index, error)
            return
        logger.warning("partition %s-%d is back online", topic.name, partition.index)
        image = self._image.topics_by_id.get(topic.id, image)
        if topic.config.overrides != image.configs:
            topic.configure(TopicConfig.in_force(image.configs, self._config.now))

    def _decides_of_archive(self, topic: Topic, index: int) -> bool:
        """Not a follower, which lags and gets the rest from its leader."""
        image = self._image.topics_by_id.get(topic.id)
        state = image.partitions[index] if image is not None and index < len(image.partitions) else None
        return state is None or state.leader == self._node or len(state.replicas) == 1
