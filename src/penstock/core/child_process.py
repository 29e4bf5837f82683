"""A child process that a test does things to: it is stopped, killed, paused and let go on."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STOP_SECONDS = 20.0


class Child:
    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None

    @property
    def is_running(self) -> bool:
        """Started, and neither stopped nor killed by us."""
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    def stop(self) -> None:
        """A clean stop, waited for; nothing to do when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, waited for."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the block it hangs: connections stay open, and nobody answers."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # it may be paused
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._release()

    def _release(self) -> None:
        """It has ended."""
        self._process = None
