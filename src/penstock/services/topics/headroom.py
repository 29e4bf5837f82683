"""Whether the brokers that would get them can take more partitions: asked before they are written down.

For then they have to come. Each broker says as it registers how many partitions its descriptors can serve; how full its
disk is, it is asked. Who does not answer is taken to have room: if it has none it says so in its own log.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError, StorageError
from penstock.core.files import Files
from penstock.core.jobs import Jobs
from penstock.core.limits import (
    PARTITION_BYTES_MIN,
    PARTITION_INODES,
    PARTITIONS_PER_FILE_MAX,
)
from penstock.replication.table import PartitionTable
from penstock.storage.data_dir import DataDir

logger = logging.getLogger(__name__)

# How long a broker may take to say how full its disk is, while who wants a topic waits.
_ANSWER_SECONDS = 0.5

# (total, usable) bytes of another broker's disk.
AskDisk = Callable[[int], Awaitable[tuple[int, int]]]


def partitions_max(files: Files) -> int:
    """That a broker with these descriptors can serve."""
    return files.descriptors.files_max * PARTITIONS_PER_FILE_MAX


class Headroom:
    def __init__(
        self,
        jobs: Jobs,
        data_dir: DataDir,
        table: PartitionTable,
        node_id: int,
        image: ClusterImage,
        ask_disk: AskDisk,
    ) -> None:
        self._jobs = jobs
        self._data_dir = data_dir
        self._table = table
        self._node_id = node_id
        self._image = image
        self._ask_disk = ask_disk

    async def check(self, counts: Mapping[int, int]) -> None:
        """Of so many more on each of these brokers; ApiError says what is short, and where."""
        others = {broker: count for broker, count in counts.items() if count and broker != self._node_id}
        await self._check_here(counts.get(self._node_id, 0))
        self._check_descriptors_of(others)
        await asyncio.gather(*(self._check_disk_of(broker, count) for broker, count in others.items()))

    async def _check_here(self, count: int) -> None:
        if not count:
            return
        here = sum(len(topic.partitions) for topic in self._table.stored_topics())
        _check_descriptors(self._node_id, here + count, partitions_max(self._data_dir.files))
        try:
            free_bytes, free_inodes = await self._jobs.run(self._free)
        except (StorageError, FileNotFoundError):
            return  # who makes the partitions will see, and try again
        _check_disk(self._node_id, count, free_bytes, free_inodes)

    def _free(self) -> tuple[int, int]:
        files, path = self._data_dir.files, self._data_dir.path
        return files.free_bytes(path), files.free_inodes(path)

    def _check_descriptors_of(self, others: Mapping[int, int]) -> None:
        if not others:
            return
        states = chain.from_iterable(topic.partitions for topic in self._image.stored_topics())
        held = Counter(chain.from_iterable(state.replicas for state in states))
        for broker, count in others.items():
            registered = self._image.brokers.get(broker)
            if registered is not None and registered.partitions_max is not None:
                _check_descriptors(broker, held[broker] + count, registered.partitions_max)

    async def _check_disk_of(self, broker: int, count: int) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                total_bytes, usable_bytes = await self._ask_disk(broker)
        except (OSError, TimeoutError, PenstockError) as error:
            logger.info("broker %d does not tell how full its disk is: %s", broker, error)
            return
        if total_bytes > 0:  # else it cannot tell
            _check_disk(broker, count, usable_bytes)


def _check_descriptors(broker: int, partitions: int, most: int) -> None:
    if partitions > most:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Broker {broker} would have {partitions} partitions, with descriptors for open files of {most} at most. "
            "Raise its limit (ulimit -n).",
        )


def _check_disk(broker: int, count: int, free_bytes: int, free_inodes: int | None = None) -> None:
    """Without `free_inodes` of another broker: one that has none left says that it can use no byte."""
    if free_bytes < count * PARTITION_BYTES_MIN:
        what = "space"
    elif free_inodes is not None and free_inodes < count * PARTITION_INODES:
        what = "inodes"
    else:
        return
    raise ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"The disk of broker {broker} has no {what} left for {count} more partitions. Deleting topics makes room.",
    )
