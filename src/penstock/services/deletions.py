"""Deleting the beginning of a partition on demand: gone for readers at once, and answered when that is durable."""

import asyncio
from concurrent.futures import Executor

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.table import PartitionTable
from penstock.services.topic_names import INTERNAL_TOPICS

# In place of an offset: everything that readers can see.
UP_TO_HIGH_WATERMARK = -1


class DeletionService:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor | None, table: PartitionTable
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._table = table

    async def delete_before(self, topic: str, index: int, offset: int) -> int:
        """The first offset that is left; ApiError when the records may not go."""
        partition = self._table.find(topic, index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        config = self._table.by_name[topic.encode()].config
        if config.compacts and not config.deletes:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        if offset == UP_TO_HIGH_WATERMARK:
            offset = partition.readable.offset
        if not 0 <= offset <= partition.readable.offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log = partition.log
        log.advance_start(offset)
        if log.start_offset > 0:
            # Also where nothing moved: the request that moved it may still be waiting for the disk.
            await self._loop.run_in_executor(self._executor, log.start_job().run)
        return max(offset, log.start_offset)
