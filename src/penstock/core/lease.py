"""Who changes the files of one log, in threads: the one place that knows all of them.

Such work (syncs and checkpoints, start marks, segments that retention hides, exchanges of compaction) goes by names,
and a topic that is made again has the names of the one before it. So every job takes the lease of its log; whoever
moves, replaces or cuts the files waits until it is free; and once it has ended, nobody gets it any more.
"""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


class Lease:
    __slots__ = ("_running", "ended")

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], None] = {}
        self.ended = False  # the files are not its log's any longer: no new work on them

    @property
    def is_free(self) -> bool:
        return not self._running

    def take(self, job: asyncio.Future[T]) -> asyncio.Future[T]:
        """The job has it until it is done. Not for a future that may be cancelled while its thread works."""
        self._running[job] = None
        job.add_done_callback(self._gave_back)
        return job

    def _gave_back(self, job: asyncio.Future[Any]) -> None:
        del self._running[job]

    async def free(self) -> None:
        """Returns when nobody has it."""
        while self._running:
            await asyncio.wait(list(self._running))
