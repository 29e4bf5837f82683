"""Runs what computes for long in a process of its own: one per job, at low priority, gone when the job is done.

Opening millions of records in this process would keep the interpreter lock from the event loop; in another one it
takes a core that would else be idle, gives its memory back when it ends, and can be ended at any time. The process
dies with the broker, however that ends: it must never write beside the broker's successor.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.core.errors import PenstockError
from penstock.storage.cleaning import CleanJob, CleanResult

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

P = ParamSpec("P")
T = TypeVar("T")

_NICENESS = 10
_JOBS_AT_ONCE_MAX = 8
_PR_SET_PDEATHSIG = 1


class WorkerDiedError(PenstockError):
    """The process ended without an answer: killed, or out of memory."""


class ProcessExecutor(Executor):
    def __init__(self) -> None:
        self._context = get_context("spawn")  # a fork of a process with threads can hang
        self._threads = ThreadPoolExecutor(_JOBS_AT_ONCE_MAX, thread_name_prefix="worker")
        self._processes: dict[BaseProcess, None] = {}
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._threads.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve, args=(theirs, os.getpid(), fn, args, kwargs), daemon=True
        )
        process.start()
        self._processes[process] = None
        try:
            theirs.close()
            if self._closed:
                process.kill()
            ok, answer = ours.recv()
        except EOFError:
            process.join()
            raise WorkerDiedError(f"the worker process ended with {process.exitcode}") from None
        finally:
            ours.close()
            process.join()
            del self._processes[process]
        if ok:
            return answer  # type: ignore[no-any-return]
        raise answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What still runs is ended: nothing that it does is in force before it is done."""
        self._closed = True
        for process in list(self._processes):
            process.kill()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


def clean_paced(job: CleanJob) -> CleanResult:
    """A round of compaction within `log.cleaner.io.max.bytes.per.second`."""
    return job.run(Pacer(job.bytes_per_second_max))


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


def _serve(
    connection: Connection,
    parent: int,
    fn: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to us, too; the broker decides
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before it could be followed
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    try:
        answer: tuple[bool, object] = (True, fn(*args, **kwargs))
    except Exception as error:
        answer = (False, error)
    connection.send(answer)
