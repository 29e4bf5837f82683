"""What the data directory holds and has left, per partition."""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from penstock.core.limits import PARTITION_INODES
from penstock.replication.table import PartitionTable
from penstock.storage.data_dir import DataDir


@dataclass(frozen=True, slots=True)
class DirUsage:
    path: str
    # An I/O error took the directory out of service until the next start.
    offline: bool
    # Topic name to (partition, bytes of its log).
    topics: Mapping[str, list[tuple[int, int]]]
    total_bytes: int
    usable_bytes: int


class DiskUsage:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        data_dir: DataDir,
        table: PartitionTable,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._data_dir = data_dir
        self._table = table

    @property
    def path(self) -> str:
        """The one directory, as DescribeLogDirs names it."""
        return str(self._data_dir.path.absolute())

    @property
    def is_offline(self) -> bool:
        return any(partition.log.failed for partition in self._table.partitions())

    async def measure(self, wanted: Iterable[tuple[str, Iterable[int]]] | None) -> DirUsage:
        """Of the `wanted` partitions that are here; None for all."""
        total, usable = await self._loop.run_in_executor(self._executor, self._usable)
        if wanted is None:
            wanted = [(topic.name, topic.partitions) for topic in self._table.stored_topics()]
        sizes: dict[str, dict[int, int]] = {}
        for name, indexes in wanted:
            topic = self._table.by_name.get(name.encode())
            for index in indexes:
                partition = topic.partitions.get(index) if topic is not None else None
                if partition is not None:
                    sizes.setdefault(name, {})[index] = partition.log.size_bytes
        return DirUsage(
            path=self.path,
            offline=self.is_offline,
            topics={name: list(partitions.items()) for name, partitions in sizes.items()},
            total_bytes=total,
            usable_bytes=usable,
        )

    def _usable(self) -> tuple[int, int]:
        """As `space`; where no partition could be made, for want of inodes, nothing is usable."""
        total, free = self.space()
        has_inodes = self._data_dir.files.free_inodes(self._data_dir.path) >= PARTITION_INODES
        return total, free if has_inodes else 0

    def space(self) -> tuple[int, int]:
        """The size of its volume, and what is free of it, in bytes; it asks the file system."""
        files, path = self._data_dir.files, self._data_dir.path
        return files.total_bytes(path), files.free_bytes(path)
