"""Rounds of compaction in processes of their own: one per round, at low priority, gone when it is done.

Opening millions of records in this process would keep the interpreter lock from the event loop; in another one it
takes a core that would else be idle, gives its memory back when it ends, and can be ended at any time. The process
dies with the broker, however that ends: it must never write beside the broker's successor.
"""

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from penstock.core.errors import WorkerDiedError
from penstock.storage.compaction.clean_job import CleanedSegment, CleanJob, Learned
from penstock.storage.compaction.cleaning import CleanRound

_NICENESS = 10
_ROUNDS_AT_ONCE_MAX = 8
_PR_SET_PDEATHSIG = 1
# Not `multiprocessing`: it would import the command line once more, and leave a process of its own behind.
_COMMAND = (sys.executable, "-m", "penstock.server.worker")


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
        for remote in list(self._rounds):
            remote.close()
        self.threads.shutdown()

    def round_of(self, job: CleanJob) -> "RemoteRound":
        remote = RemoteRound(self, job)
        self._rounds[remote] = None
        return remote

    def forget(self, remote: "RemoteRound") -> None:
        self._rounds.pop(remote, None)

    @property
    def closed(self) -> bool:
        return self._closed


class RemoteRound:
    """A `CleanRound` that works in another process, started with the first call. Its methods block."""

    def __init__(self, workers: Workers, job: CleanJob) -> None:
        self._workers = workers
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def learn(self) -> Learned:
        with self._lock:  # whoever closes it finds the process, or there is none
            if self._closed or self._workers.closed:
                raise WorkerDiedError("the broker is stopping")
            self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        learned: Learned = self._asked((os.getpid(), self._job), "learn")
        return learned

    def rewrite_next(self) -> CleanedSegment | None:
        cleaned: CleanedSegment | None = self._asked("rewrite_next")
        return cleaned

    def _asked(self, *told: object) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for message in told:
                pickle.dump(message, process.stdin)
            process.stdin.flush()
            succeeded, answer = pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # ended, or closed while it was read
            process.kill()
            raise WorkerDiedError(f"the worker process ended with {process.wait()}") from None
        if succeeded:
            return answer
        raise answer

    def close(self) -> None:
        self._workers.forget(self)
        with self._lock:
            self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # what was not sent is of no use any more
                    if pipe is not None:
                        pipe.close()


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


def main() -> None:
    """The other side: a job comes in, then the names of methods; answers go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to us, too; the broker decides
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent, job = pickle.load(sys.stdin.buffer)
    if os.getppid() != parent:
        return  # it died before it could be followed
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    cleaning = CleanRound(job, Pacer(job.bytes_per_second_max))
    while True:
        method = pickle.load(sys.stdin.buffer)
        try:
            answer: tuple[bool, object] = (True, getattr(cleaning, method)())
        except Exception as error:
            answer = (False, error)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        main()
