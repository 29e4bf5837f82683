"""A real broker as a child process on a free port, gone with its data when the test is done."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock.core.errors import PenstockError

_READY = "penstock listens on "
_STOP_SECONDS = 20.0


class BrokerStartError(PenstockError):
    """The broker did not come up; the message has what it said."""


class BrokerProcess:
    """One data directory, and the broker process on it: start, stop, kill, start again."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        entry: Sequence[str] = ("-m", "penstock.cli.main"),
    ) -> None:
        """`entry` is what Python is given to run: a test may start the broker through a script of its own."""
        self.data_dir = data_dir
        self._entry = list(entry)
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self._console_port = 0
        self._log: IO[str] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def log_path(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self) -> None:
        """Start (again) on the same data and, after the first time, the same port; returns once it serves."""
        command = [sys.executable, *self._entry, "up", "--data-dir", str(self.data_dir)]
        command += ["--host", "127.0.0.1", "--port", str(self._port), "--console-port", "0"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._log = self.log_path.open("a")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_READY):
                self._port = int(line.removeprefix(_READY).split()[0].rsplit(":", 1)[1])
                return
        self._process.wait()
        raise BrokerStartError(f"the broker did not start:\n{self.log_path.read_text()[-2000:]}")

    def stop(self) -> None:
        """A clean stop, waited for."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, waited for."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()
            if self._log is not None:
                self._log.close()


@contextmanager
def broker(settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A running broker with its own temporary data; `settings` are broker settings such as `num.partitions`."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        process = BrokerProcess(Path(directory) / "data", settings)
        process.start()
        try:
            yield process
        finally:
            process.stop()
