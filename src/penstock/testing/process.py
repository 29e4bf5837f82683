"""A real broker as a child process on a free port, gone with its data when the test is done."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock.core.child_process import Child
from penstock.core.errors import PenstockError

_LISTENS = "penstock listens on "
_LISTENER = "listener "
_CONSOLE = "metrics and health on "
_READY = "; ready after "
_START_SECONDS = 120.0
_LOG_SHOWN_CHARACTERS = 4000


class BrokerStartError(PenstockError):
    """The broker did not come up; the message has what it said."""


class BrokerProcess(Child):
    """One data directory, and the broker process on it: start, stop, kill, start again."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        entry: Sequence[str] = ("-m", "penstock.cli.main"),
        *,
        zookeeper: str | None = None,
        node_id: int = 1,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`entry` is what Python is given to run: a test may start the broker through a script of its own.

        With `zookeeper` (HOST:PORT/path) it is a broker of that cluster, under the number `node_id`. `prefix` is a
        command that runs the command it is given, such as `ip netns exec NAME`, where `host` is an address.
        """
        super().__init__()
        self._host = host
        self._prefix = list(prefix)
        self._zookeeper = zookeeper
        self._node_id = node_id
        self.data_dir = data_dir
        self._entry = list(entry)
        self._settings = dict(settings or {})
        self._port = 0
        self._listeners: dict[str, str] = {}
        self._console_url = ""
        self._log: IO[str] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"{self._host}:{self._port}"

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    @property
    def listeners(self) -> Mapping[str, str]:
        """The address of each listener by its name, where `settings` name several."""
        return self._listeners

    @property
    def console_url(self) -> str:
        """Where `/metrics` and `/healthz` are; another port after every start."""
        return self._console_url

    @property
    def log_path(self) -> Path:
        """What the broker logs, over all its starts."""
        return self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self) -> None:
        """Start (again) on the same data and, after the first time, the same port; returns once it serves."""
        assert self._process is None, "the broker is running already"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = self.log_path.open("a")
        # Settings in the environment are for brokers that people start, not for a test's.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        process = self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        too_late = threading.Timer(_START_SECONDS, process.kill)
        too_late.start()
        try:
            ready = self._await_ready(process)
        finally:
            too_late.cancel()
            too_late.join()
        if not ready:
            code = process.wait()
            self._release()
            said = self.log_path.read_text()[-_LOG_SHOWN_CHARACTERS:].strip()
            late = f", killed after {_START_SECONDS:.0f} s" if code == -signal.SIGKILL else ""
            raise BrokerStartError(f"the broker did not start (exit code {code}{late}):\n{said}")

    @contextmanager
    def down(self, *, clean: bool = False) -> Iterator[None]:
        """Inside the block it is gone, by kill -9 or a clean stop; behind it back, with its data, on the same port."""
        self._end(signal.SIGTERM if clean else signal.SIGKILL)
        try:
            yield
        finally:
            self.start()

    def _command(self) -> list[str]:
        command = [*self._prefix, sys.executable, *self._entry]
        listens = "listeners" not in self._settings  # or the settings say where
        if self._zookeeper is None:
            command += ["up", *(["--host", self._host, "--port", str(self._port)] if listens else [])]
        else:
            command += ["broker", "--id", str(self._node_id), "--zookeeper", self._zookeeper]
            command += ["--listener", f"{self._host}:{self._port}"] if listens else []
        command += ["--data-dir", str(self.data_dir), "--console-port", "0"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _await_ready(self, process: "subprocess.Popen[str]") -> bool:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(_LISTENS):
                self._port = int(line.removeprefix(_LISTENS).split()[0].rpartition(":")[2])
            elif line.startswith(_LISTENER):
                name, _, address = line.removeprefix(_LISTENER).split()
                self._listeners[name] = address
            elif line.startswith(_CONSOLE):
                self._console_url = line.removeprefix(_CONSOLE).split()[0]
            elif _READY in line:
                return True
        return False

    def _release(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        super()._release()
        if self._log is not None:
            self._log.close()
            self._log = None


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
