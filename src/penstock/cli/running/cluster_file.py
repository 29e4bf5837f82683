"""`cluster.json` in the data dir of a local cluster: its processes, and what they were started with.

It stays when the cluster is stopped, naming no processes any more: the next `up` starts as many brokers, with the same
settings, on the same ports.

Whoever starts or ends processes holds the lock of the directory, and writes each change down at once: who is killed
meanwhile leaves nothing that nobody knows of. A foreground `up` does not hold it while it waits. What it finds when it
is told to end may be another's cluster: it ends that one only if it has a process in it.
"""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from penstock.cli.command import say_error
from penstock.cli.errors import CommandError
from penstock.cli.running.cluster_processes import (
    HOST,
    NOT_STARTED,
    Member,
    cluster_id,
    end_one,
    started_by_hand,
)

_FILE = "cluster.json"
_LOCK_FILE = ".cluster.lock"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    zookeeper: Member
    brokers: list[Member]
    settings: dict[str, str] = field(default_factory=dict)  # those that brokers were started with

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    @property
    def members(self) -> list[Member]:
        """In the order in which they are started."""
        return [self.zookeeper, *self.brokers]

    @property
    def is_running(self) -> bool:
        return any(member.is_running for member in self.members)

    @property
    def was_stopped(self) -> bool:
        return all(member.pid == NOT_STARTED for member in self.members)

    def with_member(self, member: Member) -> "LocalCluster":
        """With another process in the place of the one that has its number."""
        if member.id == self.zookeeper.id:
            return replace(self, zookeeper=member)
        return replace(
            self, brokers=[member if broker.id == member.id else broker for broker in self.brokers]
        )

    def save(self, data_dir: Path) -> None:
        fresh = data_dir / f"{_FILE}.new"
        fresh.write_text(json.dumps(asdict(self), indent=1))
        fresh.replace(data_dir / _FILE)

    @staticmethod
    def find(data_dir: Path) -> "LocalCluster | None":
        try:
            fields = json.loads((data_dir / _FILE).read_text())
            brokers = [Member(**member) for member in fields["brokers"]]
            return LocalCluster(Member(**fields["zookeeper"]), brokers, dict(fields.get("settings", {})))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{data_dir / _FILE} is damaged: remove it, and end its processes by hand"
            ) from error

    def end(self, data_dir: Path) -> None:
        """Also brokers of this cluster that were started by hand with data below its own. One after the other, so that
        each hands over what it leads; then ZooKeeper."""
        ids = {cluster_id(data_dir / f"broker-{broker.id}") for broker in self.brokers} - {None}
        known = {member.pid for member in self.brokers}
        by_hand = [member for member in started_by_hand(data_dir, ids) if member.pid not in known]
        for member in (*by_hand, *self.brokers, self.zookeeper):
            end_one(member)
        stopped = LocalCluster(_stopped(self.zookeeper), list(map(_stopped, self.brokers)), self.settings)
        stopped.save(data_dir)


def forget(data_dir: Path) -> None:
    (data_dir / _FILE).unlink(missing_ok=True)


def end_own(begun: Sequence[Member], data_dir: Path) -> None:
    """End the cluster that has these processes, with those that others have started for it meanwhile. If there is none
    (it was stopped, and perhaps another one started), then what still runs of these."""
    found = None
    with suppress(CommandError):
        found = LocalCluster.find(data_dir)
    if found is not None and any(member in begun for member in found.members):
        found.end(data_dir)
        return
    for member in reversed(begun):
        end_one(member)


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Nobody else starts or ends processes of this cluster meanwhile."""
    with (data_dir / _LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_error(f"another `penstock cluster` is at work in {data_dir}: waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stopped(member: Member) -> Member:
    return replace(member, pid=NOT_STARTED, began="")
