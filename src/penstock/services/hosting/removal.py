"""Out of service, and off the disk: topics that were deleted, and replicas that are kept elsewhere now."""

import logging
from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.core.jobs import Jobs
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.hosting.roles import Roles
from penstock.services.relay.retired import forget_retired
from penstock.storage.data_dir import DataDir

logger = logging.getLogger(__name__)


class Removal:
    def __init__(self, data_dir: DataDir, table: PartitionTable, jobs: Jobs, roles: Roles) -> None:
        self._data_dir = data_dir
        self._table = table
        self._jobs = jobs
        self._roles = roles

    async def discard(self, topic: Topic) -> None:
        """Take a deleted topic out of service at once, and out of sight; its files go in a thread, at leisure."""
        forget_retired(self._table.routes, topic.id)  # first: whoever hears of it looks for the topic
        self._table.remove(topic)
        # Whoever has the topic still at hand, a request that gives way to others, writes nothing more to it: that would
        # never be synced nor answered, and a new segment would be made in the directory of the next topic of its name.
        self._stand_back(topic)  # in functions of their own: no variable here may keep a partition alive
        await self._end_all(topic)
        try:
            await self._jobs.run(partial(self._data_dir.discard_topic, topic.name, topic.id))
        except (StorageError, FileNotFoundError):
            # The next start sets aside what is left; other topics must not suffer for it now.
            logger.exception("the files of the deleted topic %s could not be removed", topic.name)
        self._jobs.start(
            f"what is left of {topic.name} stays until the next start", partial(_free, self._data_dir, topic)
        )

    async def drop(self, topic: Topic, indexes: list[int]) -> None:
        """Replicas that moved to other brokers: whoever still asks here is sent on, and the files go."""
        for index in indexes:
            partition = topic.partitions.pop(index)
            await self._roles.leave(topic, partition)
            await self._end(partition)
            logger.info("%s-%d: this replica is not kept here any longer", topic.name, index)
            try:
                await self._jobs.run(partial(self._data_dir.discard_partition, topic.name, topic.id, index))
            except (StorageError, FileNotFoundError):
                logger.exception("the files of %s-%d could not be removed", topic.name, index)
        if indexes:
            self.empty_trash()

    def _stand_back(self, topic: Topic) -> None:
        for partition in topic.partitions.values():
            partition.turn_away(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
            self._roles.stand_back(topic, partition)

    async def _end_all(self, topic: Topic) -> None:
        for partition in topic.partitions.values():
            await self._roles.let_go(partition)
        for partition in topic.partitions.values():
            partition.lease.end()
        for partition in topic.partitions.values():
            await self._end(partition)

    async def _end(self, partition: Partition) -> None:
        """Nothing begins on its files any more, and what has begun is done: the names may be another one's soon."""
        partition.lease.end()
        await partition.lease.free()
        partition.log.close(deleted=True)

    def empty_trash(self) -> None:
        self._jobs.start("the trash is not empty yet", self._data_dir.empty_trash)


def _free(data_dir: DataDir, topic: Topic) -> None:
    """Closing the last handle of a removed file is what frees its blocks, which takes long: let it happen here, and
    not wherever the topic is forgotten last. What is still being sent keeps its own handle."""
    data_dir.empty_trash()
    topic.partitions.clear()
