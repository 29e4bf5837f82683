"""Who changes the files of one log: one lease for each, that is asked for, taken and awaited.

    kind         what it does                                                     is not begun beside
    SYNC         makes what was appended durable                                  SYNC, CHECKPOINT, EPOCHS, CUT
    CHECKPOINT   the same, and saves indexes, epochs, producers, recovery point   SYNC, CHECKPOINT, EPOCHS, CUT
    EPOCHS       a follower saves where leader epochs began                       SYNC, CHECKPOINT, EPOCHS, CUT
    DELETE       marks where the log starts, hides segments for retention         CUT
    CLEAN        compaction exchanges segments, or notes how far it is            CHECKPOINT, CLEAN, CUT
    CUT          cuts the end off, begins the log anew, opens it again            anything

It is not the same both ways: a checkpoint may begin while segments are exchanged, for it leaves those alone; an
exchange that began under a checkpoint would find the old index back in place of its own.

Work on files happens in threads, which cannot be cancelled, and goes by names; a topic that is made again has the names
of the one before it. So a lease lasts as long as the thread, whatever becomes of who waits for it; and once it has
ended, nobody gets it any more.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Work(IntEnum):
    """Each a bit, so that several are a number."""

    __hash__ = int.__hash__  # that of enums is a call in Python

    SYNC = 1
    CHECKPOINT = 2
    EPOCHS = 4
    DELETE = 8
    CLEAN = 16
    CUT = 32


_SYNCS = Work.SYNC | Work.CHECKPOINT
_NOT_BESIDE: dict[Work, int] = {
    Work.SYNC: _SYNCS | Work.EPOCHS | Work.CUT,
    Work.CHECKPOINT: _SYNCS | Work.EPOCHS | Work.CUT,
    Work.EPOCHS: _SYNCS | Work.EPOCHS | Work.CUT,
    Work.DELETE: Work.CUT,
    Work.CLEAN: Work.CHECKPOINT | Work.CLEAN | Work.CUT,
    Work.CUT: ~0,
}


class Hold:
    """The lease, held for one kind of work: until it is released, and no job runs any more that was begun under it."""

    __slots__ = ("_jobs", "_lease", "_released", "work")

    def __init__(self, lease: "Lease", work: Work) -> None:
        self._lease = lease
        self._jobs = 0
        self._released = False
        self.work = work

    def during(self, job: asyncio.Future[T]) -> asyncio.Future[T]:
        """It is held until the job is done, too. Not for a future that may be cancelled while its thread works."""
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Future[Any]) -> None:
        self._jobs -= 1
        if self._released and not self._jobs:
            self._lease.give_back(self)

    def release(self) -> None:
        """Once."""
        self._released = True
        if not self._jobs:
            self._lease.give_back(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Lease:
    __slots__ = ("_held", "_waiting", "ended", "is_syncing")

    def __init__(self) -> None:
        self._held: dict[Hold, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self.is_syncing = False  # also one that was asked for, and is about to begin
        self.ended = False  # the files are not its log's any longer: no new work on them

    def is_held(self, kinds: int) -> bool:
        for hold in self._held:  # noqa: SIM110 - every sync comes by here twice
            if hold.work & kinds:
                return True
        return False

    @property
    def is_cutting(self) -> bool:
        """Whether what the log has may not be what it had a moment ago, and be less in the next."""
        return self.ended or self.is_held(Work.CUT)

    def take(self, work: Work) -> Hold | None:
        """None: not now, or never again."""
        if self.ended or self.is_held(_NOT_BESIDE[work]):
            return None
        hold = Hold(self, work)
        self._held[hold] = None
        if work & _SYNCS:
            self.is_syncing = True
        return hold

    async def get(self, work: Work) -> Hold | None:
        """The same, as soon as it may be. None: never again."""
        while (hold := self.take(work)) is None and not self.ended:
            await self.given_back()
        return hold

    def end(self) -> None:
        """Nobody gets it from now on; see `free`."""
        self.ended = True
        self._wake()

    async def free(self) -> None:
        """Returns when nobody has it."""
        while self._held:
            await self.given_back()

    async def given_back(self) -> None:
        """Returns when somebody gave it back, or it has ended: whoever waits for something looks again."""
        again = asyncio.Event()
        self.call_when_given_back(again.set)
        await again.wait()

    def call_when_given_back(self, callback: Callable[[], None]) -> None:
        """Once."""
        self._waiting.append(callback)

    def give_back(self, hold: Hold) -> None:
        """For `Hold.release`."""
        del self._held[hold]
        if hold.work & _SYNCS:
            self.is_syncing = False  # of these there is one at a time
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
