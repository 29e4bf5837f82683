"""Whether the disk has room, told once when it has none any more and once when it has some again."""

import asyncio
import logging

from penstock.core.errors import StorageError
from penstock.core.jobs import Jobs
from penstock.core.limits import DISK_FULL_BYTES, PARTITION_INODES
from penstock.storage.data_dir import DataDir

logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 5.0


class DiskWatch:
    def __init__(self, jobs: Jobs, data_dir: DataDir) -> None:
        self._jobs = jobs
        self._data_dir = data_dir
        self.is_full = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        try:
            is_full = await self._jobs.run(self._look)
        except (StorageError, FileNotFoundError):
            return
        if is_full and not self.is_full:
            logger.error(
                "the disk of %s is full: writes are refused, reads and deletions go on. Deleting topics or records "
                "makes room",
                self._data_dir.path,
            )
        elif self.is_full and not is_full:
            logger.warning("the disk of %s has room again: writes are taken", self._data_dir.path)
        self.is_full = is_full

    def _look(self) -> bool:
        files, path = self._data_dir.files, self._data_dir.path
        return files.free_bytes(path) < DISK_FULL_BYTES or files.free_inodes(path) < PARTITION_INODES
