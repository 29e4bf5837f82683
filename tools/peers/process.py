"""A server as a child process: free ports, a directory of its own, and readiness.

A broker is ready when it answers ApiVersions: an open port alone is too early for Kafka, whose listener
accepts connections before its request handlers run.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

HOST = "127.0.0.1"
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
LOG_TAIL_CHARS = 4000
# ApiVersions v0: size, api key 18, version 0, correlation id 1, null client id.
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class PeerError(Exception):
    """A peer cannot be installed, started or stopped; the message says what to do."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; held together so that they differ from each other."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind((HOST, 0))
        return [int(holder.getsockname()[1]) for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def answers_api_versions(port: int, timeout_s: float = 1.0) -> bool:
    """True when the broker on `port` answers an ApiVersions request without an error."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            answer = b""
            while len(answer) < 10:
                part = connection.recv(4096)
                if not part:
                    return False
                answer += part
            _size, correlation_id, error = struct.unpack_from(">iih", answer)
            return (correlation_id, error) == (1, 0)
    except OSError:
        return False


class PeerProcess(ABC):
    """One server process. `with Peer() as peer:` starts it ready to serve and leaves nothing behind."""

    name: str

    def __init__(self, work_dir: Path | None = None) -> None:
        # A directory that the caller names is the caller's to remove: it may hold logs worth keeping.
        self._own_work_dir = work_dir is None
        self.work_dir = Path(tempfile.mkdtemp(prefix=f"{self.name}-")) if work_dir is None else work_dir
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    # What a subclass says about its server.

    @abstractmethod
    def prepare(self) -> None:
        """Everything that must be there before the first start; called once."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    def environment(self) -> Mapping[str, str]:
        """What it gets on top of ours."""
        return {}

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it serves; asked again and again until it does."""

    # What every server shares.

    @property
    def log_file(self) -> Path:
        return self.work_dir / f"{self.name}.log"

    @property
    def data_dir(self) -> Path:
        return self.work_dir / "data"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerError(f"{self.name} is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        if self.alive:
            raise PeerError(f"{self.name} runs already, as pid {self.pid}")
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.work_dir,
                env=os.environ | self.environment(),
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if not self.alive:
                raise PeerError(f"{self.name} ended while starting; its log ends with:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise PeerError(f"{self.name} not ready in {timeout_s:.0f} s; log:\n{self.log_tail()}")
            time.sleep(0.02)

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        self.launch()
        self.wait_ready(timeout_s)

    def stop(self) -> None:
        """A clean stop: SIGTERM, and wait."""
        if self._process is None:
            return
        if self.alive:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(f"{self.name} ignored SIGTERM for {STOP_TIMEOUT_S:.0f} s; killed") from None
        self._process = None

    def kill(self) -> None:
        """A crash: SIGKILL, and wait."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        try:
            return self.log_file.read_text(errors="replace")[-LOG_TAIL_CHARS:]
        except FileNotFoundError:
            return "(no log)"

    def close(self) -> None:
        """Stop, and remove the directory if it is ours."""
        try:
            self.stop()
        finally:
            if self._own_work_dir:
                shutil.rmtree(self.work_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.kill()
            if self._own_work_dir:
                shutil.rmtree(self.work_dir, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BrokerProcess(PeerProcess):
    """One broker of those that are compared."""

    def __init__(self, work_dir: Path | None = None) -> None:
        super().__init__(work_dir)
        self.port = free_ports(1)[0]

    @classmethod
    @abstractmethod
    def installed_version(cls) -> str: ...

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def is_ready(self) -> bool:
        return answers_api_versions(self.port)
