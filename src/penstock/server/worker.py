"""Rounds of compaction in processes of their own: one per round, at low priority, gone when it is done.

Opening millions of records in this process would keep the interpreter lock from the event loop; in another one it
takes a core that would else be idle, gives its memory back when it ends, and can be ended at any time. The process
dies with the broker, however that ends: it must never write beside the broker's successor.
"""

import contextlib
import ctypes
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

from penstock.core.errors import PenstockError
from penstock.storage.cleaning import CleanedSegment, CleanJob, CleanRound, Learned

_NICENESS = 10
_ROUNDS_AT_ONCE_MAX = 8
_PR_SET_PDEATHSIG = 1
# A fork of a process with threads can hang.
_CONTEXT = get_context("spawn")


class WorkerDiedError(PenstockError):
    """The process ended without an answer: killed, or out of memory."""


class Workers:
    """All processes of one broker, and the threads that wait for their answers."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_ROUNDS_AT_ONCE_MAX, thread_name_prefix="worker")
        self._rounds: dict[RemoteRound, None] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What still runs is ended: nothing that it does is in force before it is done."""
        self._closed = True
        for one in list(self._rounds):
            one.close()
        self.threads.shutdown()

    def round_of(self, job: CleanJob) -> "RemoteRound":
        one = RemoteRound(self, job)
        self._rounds[one] = None
        return one

    def forget(self, one: "RemoteRound") -> None:
        self._rounds.pop(one, None)

    @property
    def closed(self) -> bool:
        return self._closed


class RemoteRound:
    """A `CleanRound` that works in another process, started with the first call. Its methods block."""

    def __init__(self, workers: Workers, job: CleanJob) -> None:
        self._workers = workers
        self._ours, theirs = _CONTEXT.Pipe()
        self._theirs: Connection | None = theirs
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, os.getpid(), job), daemon=True)

    def learn(self) -> Learned:
        if not self._workers.closed and self._theirs is not None:
            self._process.start()
            self._theirs.close()
            self._theirs = None
        learned: Learned = self._asked("learn")
        return learned

    def rewrite_next(self) -> CleanedSegment | None:
        cleaned: CleanedSegment | None = self._asked("rewrite_next")
        return cleaned

    def _asked(self, method: str) -> Any:
        try:
            self._ours.send(method)
            succeeded, answer = self._ours.recv()
        except (EOFError, OSError):
            if self._process.pid is not None:
                self._process.join()
            raise WorkerDiedError(f"the worker process ended with {self._process.exitcode}") from None
        if succeeded:
            return answer
        raise answer

    def close(self) -> None:
        self._workers.forget(self)
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._ours.close()


class Pacer:
    """Waits as long as more bytes were moved than the time since its making allows."""

    def __init__(self, bytes_per_second_max: float) -> None:
        self._rate = bytes_per_second_max
        self._began = time.monotonic()
        self._moved_bytes = 0

    def __call__(self, size_bytes: int) -> None:
        self._moved_bytes += size_bytes
        ahead_seconds = self._moved_bytes / self._rate - (time.monotonic() - self._began)
        if ahead_seconds > 0:
            time.sleep(ahead_seconds)


def _serve(connection: Connection, parent: int, job: CleanJob) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to us, too; the broker decides
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before it could be followed
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    one = CleanRound(job, Pacer(job.bytes_per_second_max))
    with contextlib.suppress(EOFError):
        while True:
            method = connection.recv()
            try:
                answer: tuple[bool, object] = (True, getattr(one, method)())
            except Exception as error:
                answer = (False, error)
            connection.send(answer)
