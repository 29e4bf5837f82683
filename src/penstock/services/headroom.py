"""Whether this machine can take more partitions: asked before they are written down, for then they have to come."""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.jobs import Jobs
from penstock.core.limits import (
    PARTITION_BYTES_MIN,
    PARTITION_INODES,
    PARTITIONS_PER_FILE_MAX,
)
from penstock.replication.table import PartitionTable
from penstock.storage.data_dir import DataDir


class Headroom:
    def __init__(self, jobs: Jobs, data_dir: DataDir, table: PartitionTable) -> None:
        self._jobs = jobs
        self._data_dir = data_dir
        self._table = table

    async def check(self, count: int) -> None:
        """Of so many more on this broker; ApiError says what is short."""
        if not count:
            return
        files_max = self._data_dir.files.descriptors.files_max
        here = sum(len(topic.partitions) for topic in self._table.topics())
        if here + count > files_max * PARTITIONS_PER_FILE_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"The broker would have {here + count} partitions, with descriptors for {files_max} open files: "
                f"{files_max * PARTITIONS_PER_FILE_MAX} are the most. Raise its limit (ulimit -n).",
            )
        try:
            free_bytes, free_inodes = await self._jobs.run(self._free)
        except (StorageError, FileNotFoundError):
            return  # who makes the partitions will see, and try again
        if free_bytes < count * PARTITION_BYTES_MIN or free_inodes < count * PARTITION_INODES:
            what = "space" if free_bytes < count * PARTITION_BYTES_MIN else "inodes"
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The disk of the broker has no {what} left for {count} more partitions. Deleting topics makes room.",
            )

    def _free(self) -> tuple[int, int]:
        files, path = self._data_dir.files, self._data_dir.path
        return files.free_bytes(path), files.free_inodes(path)
