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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from penstock.cli.errors import CommandError
from penstock.client.undisturbed import Undisturbed
from penstock.storage.data_format import LOCK_FILE

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
    settings: dict[str, str] = field(default_factory=dict)  # those that brokers were started with

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
            brokers = [Member(**one) for one in fields["brokers"]]
            return LocalCluster(Member(**fields["zookeeper"]), brokers, dict(fields.get("settings", {})))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{data_dir / _FILE} is damaged: remove it, and end its processes by hand"
            ) from error

    def end(self, data_dir: Path) -> None:
        """Also brokers that were started by hand with data below the cluster's."""
        known = {one.pid for one in self.brokers}
        by_hand = [one for one in started_by_hand(data_dir) if one.pid not in known]
        end([self.zookeeper, *by_hand, *self.brokers], data_dir)


def started_by_hand(data_dir: Path) -> list[Member]:
    """Whoever holds a data dir below this one, by the kernel's list of locks."""
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:  # not on Linux
        return []
    holders = {fields[5].rpartition(":")[2]: int(fields[4]) for fields in locks if fields[1] == "FLOCK"}
    found = []
    for lock in data_dir.glob(f"*/{LOCK_FILE}"):
        pid = holders.get(str(lock.stat().st_ino))
        if pid is not None and _has_open(pid, lock):  # another disk may have a file of that number
            found.append(Member(0, -1, pid, began(pid)))
    return found


def _has_open(pid: int, path: Path) -> bool:
    with suppress(OSError):  # it is no more, or somebody else's
        return any(one.resolve() == path.resolve() for one in Path(f"/proc/{pid}/fd").iterdir())
    return False


def end(members: Sequence[Member], data_dir: Path) -> None:
    """Brokers one after the other, so that each hands over what it leads; then ZooKeeper, which comes first here."""
    for member in [*members[1:], *members[:1]]:
        end_one(member)
    (data_dir / _FILE).unlink(missing_ok=True)


def began(pid: int) -> str:
    """When a process began, as the kernel counts; empty when it is no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[_BEGAN_FIELD]


def spawn(
    command: list[str], log_path: Path, id_: int, ports: tuple[int, int], members: list[Member]
) -> None:
    """Start a process that lives on without us and is not ended by our Ctrl-C, as one more of `members`; returns once
    its port is open."""
    # Ctrl-C waits: whoever ends the members must know of each.
    with log_path.open("ab") as log, Undisturbed():
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        members.append(Member(id_, ports[0], process.pid, began(process.pid), ports[1]))
    deadline = time.monotonic() + _START_SECONDS
    try:
        while not _is_open(ports[0]):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log_path.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip().rpartition("\n")[2]
                name = f"broker {id_}" if id_ else "ZooKeeper"
                raise CommandError(f"{name} did not start ({log_path}): {said}")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise


def require_all() -> None:
    """Name everything that is missing at once: each lack is found by another process, one after the other."""
    from penstock.core.distribution import install
    from penstock.testing.zookeeper import ZooKeeperStartError, find_java

    needed = {"kazoo": "cluster", "pyspark": "spark"}
    absent = [module for module in needed if find_spec(module) is None]
    lacks = []
    if absent:
        lacks.append(f"{' and '.join(absent)}, {install(*(needed[module] for module in absent))}")
    try:
        find_java()
    except ZooKeeperStartError as error:
        lacks.append(str(error))
    if lacks:
        raise CommandError(f"a local cluster needs what is missing here: {'; '.join(lacks)}")


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


def end_one(member: Member) -> None:
    if not member.is_running:
        return
    _tell(member, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while member.is_running:
        if time.monotonic() > deadline:
            _tell(member, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _tell(member: Member, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended since we looked
        os.kill(member.pid, number)
