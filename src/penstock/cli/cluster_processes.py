"""The processes of a local cluster: how they are started, found again through a file, and ended.

`cluster.json` in the data dir names each with its process id and the moment it began, so that a number the system has
given to somebody else meanwhile is never taken for ours.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.cli.errors import CommandError

HOST = "127.0.0.1"
_FILE = "cluster.json"
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_SHOWN_CHARACTERS = 2000
# The moment a process began, counted from the ")" that ends its name in /proc/<pid>/stat.
_BEGAN_FIELD = 19


@dataclass(frozen=True, slots=True)
class Member:
    """One process: ZooKeeper, or a broker."""

    id: int
    port: int
    pid: int
    began: str
    console_port: int = -1

    @property
    def is_running(self) -> bool:
        return began(self.pid) == self.began


@dataclass(frozen=True, slots=True)
class LocalCluster:
    zookeeper: Member
    brokers: list[Member]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{one.port}" for one in self.brokers)

    @property
    def is_running(self) -> bool:
        return self.zookeeper.is_running or any(one.is_running for one in self.brokers)

    def save(self, data_dir: Path) -> None:
        fresh = data_dir / f"{_FILE}.new"
        fresh.write_text(json.dumps(asdict(self), indent=1))
        fresh.replace(data_dir / _FILE)

    @staticmethod
    def find(data_dir: Path) -> "LocalCluster | None":
        try:
            fields = json.loads((data_dir / _FILE).read_text())
            return LocalCluster(Member(**fields["zookeeper"]), [Member(**one) for one in fields["brokers"]])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{data_dir / _FILE} is damaged: remove it, and end its processes by hand"
            ) from error

    def end(self, data_dir: Path) -> None:
        """Brokers one after the other, so that each hands over what it leads; then ZooKeeper."""
        for member in [*self.brokers, self.zookeeper]:
            _end(member)
        (data_dir / _FILE).unlink(missing_ok=True)


def began(pid: int) -> str:
    """When a process began, as the kernel counts; empty when it is no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[_BEGAN_FIELD]


def spawn(command: list[str], log_path: Path, name: str, id_: int, ports: tuple[int, int]) -> Member:
    """Start a process that lives on without us and is not ended by our Ctrl-C; returns once its port is open."""
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    member = Member(id_, ports[0], process.pid, began(process.pid), ports[1])
    deadline = time.monotonic() + _START_SECONDS
    try:
        while not _is_open(ports[0]):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log_path.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip().rpartition("\n")[2]
                raise CommandError(f"{name} did not start ({log_path}): {said}")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return member


def broker_command(
    id_: int, data_dir: Path, zookeeper: str, ports: tuple[int, int], settings: dict[str, str]
) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "broker",
        "--id",
        str(id_),
        "--zookeeper",
        zookeeper,
    ]
    command += [
        "--listener",
        f"{HOST}:{ports[0]}",
        "--console-port",
        str(ports[1]),
        "--data-dir",
        str(data_dir),
    ]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def _end(member: Member) -> None:
    if not member.is_running:
        return
    os.kill(member.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while member.is_running:
        if time.monotonic() > deadline:
            os.kill(member.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
