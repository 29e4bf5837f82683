"""One archiver per lake: a file with its owner in it, and a heartbeat.

The lock keeps two archivers from working against each other; it is not what keeps the archive right. Somebody who
was asleep for an hour may believe in a lock that is no longer his: his next manifest entry then has a number that is
taken (see `manifest`), and his round counts for nothing. On S3 that takes conditional writes: where they are to be had,
and what is lost without them, is in `hadoop_lake`.
"""

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive.errors import ConflictError, LockHeldError
from penstock.spark.pipelines.archive.lake import HOME, Lake
from penstock.spark.pipelines.status import process_started

PATH = f"{HOME}/lock"
HEARTBEAT_SECONDS = 10.0
# Six heartbeats that did not come; on the same machine a dead owner is seen at once.
STALE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Owner:
    token: str
    host: str
    pid: int
    process_started: str
    process_space: str  # ids of processes mean something only inside one of these
    since: float
    heartbeat: float

    @classmethod
    def decode(cls, content: bytes) -> "Owner | None":
        """None for what is no lock of ours: an empty or half-written file holds nobody up."""
        try:
            tree = json.loads(content)
            return cls(**{name: tree[name] for name in cls.__dataclass_fields__})
        except (ValueError, TypeError, KeyError):
            return None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_alive(self, now: float) -> bool:
        if self.process_space == process_space():
            return process_started(self.pid) == self.process_started
        return now - self.heartbeat < STALE_SECONDS


class Lock:
    """Held from `__enter__` to `__exit__`; `check` says whether it still is."""

    def __init__(self, lake: Lake, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._lake = lake
        self._token = uuid.uuid4().hex
        self._since = time.time()
        self._seconds = heartbeat_seconds
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._mutex = threading.Lock()  # a look at the file does not fall into a heartbeat
        self._thread = threading.Thread(target=self._beat, name="archive-lock", daemon=True)

    @property
    def token(self) -> str:
        return self._token

    def __enter__(self) -> Self:
        mine = self._owner().encode()
        try:
            self._lake.create(PATH, mine)
        except FileExistsError:
            self._take_over(mine)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(PenstockError):  # a lake that is gone; whoever comes next sees that we are, too
            owner = self._holder()
            if owner is not None and owner.token == self._token:
                self._lake.delete(PATH)

    def check(self) -> None:
        """ConflictError when somebody has taken over."""
        with self._mutex:
            owner = self._holder()
        if self._lost.is_set() or owner is None or owner.token != self._token:
            raise ConflictError(self._lake.uri)

    def _take_over(self, mine: bytes) -> None:
        owner = self._holder()
        if owner is not None and owner.token == self._token:
            return  # a file system that tried again after its first answer got lost has found our own
        if owner is not None and owner.is_alive(time.time()):
            minutes = max(0.0, time.time() - owner.since) / 60
            raise LockHeldError(
                f"process {owner.pid} on {owner.host} archives into {self._lake.uri} since {minutes:.0f} minutes: "
                "stop it first, or archive into another place"
            )
        self._lake.replace(PATH, mine)
        self.check()

    def _holder(self) -> Owner | None:
        try:
            return Owner.decode(self._lake.read(PATH))
        except FileNotFoundError:
            return None

    def _owner(self) -> Owner:
        pid = os.getpid()
        return Owner(
            token=self._token,
            host=socket.gethostname(),
            pid=pid,
            process_started=process_started(pid) or "",
            process_space=process_space(),
            since=self._since,
            heartbeat=time.time(),
        )

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds):
            # A lake that cannot be written now may be back for the next beat; the commit decides in the end.
            with suppress(PenstockError, OSError), self._mutex:
                owner = self._holder()
                if owner is None or owner.token != self._token:
                    self._lost.set()
                    return
                self._lake.replace(PATH, self._owner().encode())


def process_space() -> str:
    """The same for processes that see each other's ids; one of a kind where that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"
