"""A job in steps: it stops at file operations, and the rest of the world goes on meanwhile.

The job runs in a real thread, for only a thread can stop in the midst of any function; but it and the loop hand each
other one baton, so that one of them runs at a time and the seed decides who, as with everything else.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()


class Buried(BaseException):
    """Raised in the thread of a job that nobody will ever resume."""


class Stepped:
    """One job; `stops` says at each file operation whether it stops there."""

    def __init__(self, work: Callable[[], Any], stops: Callable[[], bool]) -> None:
        self._stops = stops
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._buried = False
        self.ended = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run, work), daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let it run to its next stop, or to its end."""
        self._go.release()
        self._back.acquire()

    def bury(self) -> None:
        self._buried = True
        while not self.ended:
            self.resume()
        self._thread.join()

    def _run(self, work: Callable[[], Any]) -> None:
        self._go.acquire()
        _here.stop = self._stop
        try:
            if not self._buried:
                work()
        except Buried:
            pass
        finally:
            self.ended = True
            self._back.release()

    def _stop(self) -> None:
        if not self._buried and self._stops():
            self._back.release()
            self._go.acquire()
        if self._buried:
            raise Buried


def may_stop_here() -> None:
    """Called by files in memory before each operation."""
    stop = getattr(_here, "stop", None)
    if stop is not None:
        stop()
