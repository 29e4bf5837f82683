"""The processes of a local cluster: how they are started, found again, and ended.

Each is known by its process id and the moment it began, so that a number the system has given to somebody else
meanwhile is never taken for ours.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from penstock.cli.errors import CommandError
from penstock.client.undisturbed import Undisturbed
from penstock.core.errors import StorageError
from penstock.core.os_files import OsFiles
from penstock.storage.data_format import LOCK_FILE, read_identity

HOST = "127.0.0.1"
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_SHOWN_CHARACTERS = 2000
# The moment a process began, counted from the ")" that ends its name in /proc/<pid>/stat.
_BEGAN_FIELD = 19
NOT_STARTED = 0  # a process id


@dataclass(frozen=True, slots=True)
class Member:
    """One process: ZooKeeper, or a broker."""

    id: int
    port: int
    pid: int = NOT_STARTED
    began: str = ""  # also where it had ended before anybody could ask
    console_port: int = -1

    @property
    def is_running(self) -> bool:
        return self.began != "" and began(self.pid) == self.began


def started_by_hand(data_dir: Path, cluster_ids: Container[str | None]) -> list[Member]:
    """Brokers of these clusters that hold a data dir below this one, by the kernel's list of locks."""
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:  # not on Linux
        return []
    holders = {fields[5].rpartition(":")[2]: int(fields[4]) for fields in locks if fields[1] == "FLOCK"}
    found = []
    for lock in data_dir.glob(f"*/{LOCK_FILE}"):
        if cluster_id(lock.parent) not in cluster_ids:
            continue
        pid = holders.get(str(lock.stat().st_ino))
        if pid is not None and _has_open(pid, lock):  # another disk may have a file of that number
            found.append(Member(0, -1, pid, began(pid)))
    return found


def cluster_id(data_dir: Path) -> str | None:
    """The cluster whose broker wrote it; None where none has."""
    with suppress(OSError, StorageError):
        return read_identity(OsFiles(), data_dir).cluster_id
    return None


def _has_open(pid: int, path: Path) -> bool:
    with suppress(OSError):  # it is no more, or somebody else's
        return any(descriptor.resolve() == path.resolve() for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    return False


def began(pid: int) -> str:
    """When a process began, as the kernel counts; empty when it is no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[_BEGAN_FIELD]


def spawn(command: list[str], log_path: Path, planned: Member, note: Callable[[Member], None]) -> None:
    """Start a process that lives on without us and is not ended by our Ctrl-C; `note` is told of it before anything
    else can go wrong. Returns once its port is open."""
    # Ctrl-C waits: whoever ends the members must know of each.
    with log_path.open("ab") as log, Undisturbed():
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        note(replace(planned, pid=process.pid, began=began(process.pid)))
    deadline = time.monotonic() + _START_SECONDS
    try:
        while not _is_open(planned.port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log_path.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip().rpartition("\n")[2]
                name = f"broker {planned.id}" if planned.id else "ZooKeeper"
                raise CommandError(f"{name} did not start ({log_path}): {said}")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise


def require_all() -> None:
    """Name everything that is missing at once: each lack is found by another process, one after the other."""
    from penstock.coordination.zookeeper.server_process import ZooKeeperStartError, find_java
    from penstock.core.distribution import install

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


def broker_command(planned: Member, data_dir: Path, zookeeper: str, settings: dict[str, str]) -> list[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "broker", "--id", str(planned.id)]
    command += ["--zookeeper", zookeeper, "--listener", f"{HOST}:{planned.port}"]
    command += ["--console-port", str(planned.console_port), "--data-dir", str(data_dir)]
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
