"""A real ZooKeeper as a child process: the server that PySpark's wheel carries, on a free port of this machine."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.child_process import Child
from penstock.core.distribution import install
from penstock.core.errors import PenstockError

HOST = "127.0.0.1"
JAVA_VERSION_MIN = 17
SESSION_MS_MAX = 600_000
_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Tens of brokers need no more; a JVM takes a quarter of the machine unless it is told.
_JVM_OPTIONS = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 120.0
_POLL_SECONDS = 0.02
_LOG_SHOWN_CHARACTERS = 4000
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class ZooKeeperStartError(PenstockError):
    """The server cannot be started; the message says what to install, or what the server said."""


class ZooKeeperProcess(Child):
    """One data directory, and the server process on it: start, stop, kill, pause, start again on the same port."""

    def __init__(
        self, data_dir: Path, *, port: int = 0, tick_ms: int = 2000, durable: bool = True, host: str = HOST
    ) -> None:
        """Sessions last 2 ticks or more. `durable=False` spares the syncs, for tests that cut no power."""
        super().__init__()
        self.data_dir = data_dir
        self._host = host
        self._port = port
        self._tick_ms = tick_ms
        self._durable = durable

    @property
    def port(self) -> int:
        return self._port

    @property
    def connect(self) -> str:
        """What the broker calls `zookeeper.connect`, without a path."""
        return f"{self._host}:{self._port}"

    @property
    def log_path(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self) -> None:
        """Returns once it answers."""
        assert self._process is None, "ZooKeeper is running already"
        self._port = self._port or free_port()
        command = self.command()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not answers(self._port, self._host):
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                said = self.log_path.read_text(errors="replace")[-_LOG_SHOWN_CHARACTERS:].strip()
                raise ZooKeeperStartError(f"ZooKeeper did not start (exit code {code}):\n{said}")
            time.sleep(_POLL_SECONDS)

    def command(self) -> list[str]:
        """What starts the server, once its directory and settings are written."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        settings = {
            "dataDir": self.data_dir / "data",
            "clientPort": self._port,
            "clientPortAddress": self._host,
            "tickTime": self._tick_ms,
            "maxSessionTimeout": SESSION_MS_MAX,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,  # all clients are on this machine
            "4lw.commands.whitelist": "srvr",
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging = self.data_dir / "log4j2.properties"
        logging.write_text(_LOGGING)
        options = {
            "zookeeper.jmx.log4j.disable": "true",
            "zookeeper.forceSync": "yes" if self._durable else "no",
            "zookeeper.preAllocSize": 1024,
            "log4j2.configurationFile": logging,
        }
        properties = [f"-D{name}={value}" for name, value in options.items()]
        return [find_java(), *_JVM_OPTIONS, *properties, "-cp", _class_path(), _MAIN_CLASS, str(config)]


@contextmanager
def zookeeper(*, tick_ms: int = 200) -> Iterator[ZooKeeperProcess]:
    """A running server with its own temporary data; short ticks, so that sessions may be short."""
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as directory:
        process = ZooKeeperProcess(Path(directory) / "zookeeper", tick_ms=tick_ms, durable=False)
        process.start()
        try:
            yield process
        finally:
            process.stop()


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        return int(holder.getsockname()[1])


def answers(port: int, host: str = HOST) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            # Not `ruok`, which it answers before it takes sessions.
            connection.sendall(b"srvr")
            return connection.recv(17) == b"Zookeeper version"
    except OSError:
        return False


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    java = next(filter(None, map(shutil.which, [*candidates, "java"])), None)
    advice = f"install a Java runtime, {JAVA_VERSION_MIN} or newer (Debian: openjdk-17-jre-headless)"
    if java is None:
        raise ZooKeeperStartError(f"ZooKeeper needs Java, and there is none: {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise ZooKeeperStartError(f"ZooKeeper cannot use {java}: {advice}")
    return java


def _class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperStartError(f"ZooKeeper's jars come with PySpark: {install('spark')}")
    return str(Path(spec.origin).parent / "jars" / "*")
