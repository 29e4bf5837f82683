"""What runs now: a small file per running pipeline, and how far each of them is behind its topics.

    with StatusFile("archive", "orders to /lake", bootstrap=bootstrap, topics=["orders"]) as status:
        status.update(offsets={"orders": {0: 1500}}, rows=500, size_bytes=90_000)

Files lie in `$PENSTOCK_STATE_DIR/pipelines/` (`~/.local/state/penstock/pipelines/` by default) and go with
their pipeline. One that was killed leaves its file behind: a reader sees that the process is gone, by its id and
by when it started, since ids are used again, and removes the file.
"""

import json
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.client.raw import LATEST, RawClient, RawError, RawOptions, TopicPartition

# Rates are over this time: long enough for rounds of a minute, short enough to see a pipeline that stands still.
RATE_SECONDS = 60.0
# Samples kept for them; more updates than this within the time only make the window shorter.
RATE_SAMPLES_MAX = 1000
BROKER_TIMEOUT_MS = 5000

# Topic, partition, the offset that will be read next.
Progress = Mapping[str, Mapping[int, int]]


def state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where what outlives a run is kept: status files, checkpoints."""
    environment = os.environ if environment is None else environment
    if environment.get("PENSTOCK_STATE_DIR"):
        return Path(environment["PENSTOCK_STATE_DIR"])
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "penstock"


def status_dir(environment: Mapping[str, str] | None = None) -> Path:
    return state_dir(environment) / "pipelines"


@dataclass(slots=True)
class Status:
    """One running pipeline, as its file tells it. Times are seconds since 1970."""

    kind: str
    name: str
    bootstrap: str
    topics: list[str]
    pid: int
    host: str
    process_started: str  # tells a process from a later one with the same id
    started: float
    updated: float
    state: str = "starting"
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    rows: int = 0
    size_bytes: int | None = None  # None: this kind of pipeline does not know
    rows_per_s: float = 0.0
    mb_per_s: float | None = None

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "Status":
        """Fields of a newer version are left out; TypeError or ValueError when it is no status."""
        known = {name: tree[name] for name in cls.__dataclass_fields__ if name in tree}
        known["offsets"] = {
            topic: {int(partition): int(offset) for partition, offset in of_topic.items()}
            for topic, of_topic in tree.get("offsets", {}).items()
        }
        return cls(**known)

    @property
    def alive(self) -> bool:
        # A state directory may be shared between machines; nothing is known of a process elsewhere.
        return self.host != socket.gethostname() or process_started(self.pid) == self.process_started


class StatusFile:
    """Written by the pipeline itself. A disk that is full or read-only stops no pipeline: it is then not listed."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        bootstrap: str,
        topics: Iterable[str] = (),
        directory: Path | None = None,
    ) -> None:
        now, pid = time.time(), os.getpid()
        self.status = Status(
            kind=kind,
            name=name,
            bootstrap=bootstrap,
            topics=list(topics),
            pid=pid,
            host=socket.gethostname(),
            process_started=process_started(pid) or "",
            started=now,
            updated=now,
        )
        self._path = (directory or status_dir()) / f"{kind}-{pid}-{uuid.uuid4().hex[:8]}.json"
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=RATE_SAMPLES_MAX)

    @property
    def path(self) -> Path:
        return self._path

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def update(
        self,
        *,
        topics: Iterable[str] | None = None,
        offsets: Progress | None = None,
        rows: int = 0,
        size_bytes: int | None = None,
        state: str = "running",
    ) -> None:
        """`offsets` replace those of the same partitions; `rows` and `size_bytes` are since the last update."""
        status, now = self.status, time.time()
        if topics is not None:
            status.topics = list(topics)
        for topic, of_topic in (offsets or {}).items():
            status.offsets.setdefault(topic, {}).update(of_topic)
        status.rows += rows
        if size_bytes is not None:
            status.size_bytes = (status.size_bytes or 0) + size_bytes
        status.updated = now
        status.state = state
        self._samples.append((now, rows, size_bytes or 0))
        while self._samples[0][0] < now - RATE_SECONDS:
            self._samples.popleft()
        seconds = max(min(now - status.started, RATE_SECONDS), 0.001)
        status.rows_per_s = round(sum(sample[1] for sample in self._samples) / seconds, 1)
        if status.size_bytes is not None:
            status.mb_per_s = round(sum(sample[2] for sample in self._samples) / seconds / 1e6, 3)
        self._write()

    def _write(self) -> None:
        """Whole or not at all: readers come at any time."""
        part = self._path.with_suffix(".part")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(asdict(self.status), ensure_ascii=False), encoding="utf-8")
            part.replace(self._path)


def process_started(pid: int) -> str | None:
    """Something that changes when the id is used again; None when there is no such process (or it is a zombie)."""
    try:
        # The name in parentheses may hold anything, so count from its end: state is next, start time 19 later.
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        return "unknown" if _signalled(pid) else None  # a system without /proc
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def running(directory: Path | None = None) -> list[Status]:
    """The pipelines whose processes live, oldest first; what dead ones left behind is removed."""
    found = []
    for path in sorted((directory or status_dir()).glob("*.json")):
        try:
            status = Status.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, AttributeError):
            continue  # gone in between, or somebody else's file
        if status.alive:
            found.append(status)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda status: status.started)


def lag(status: Status) -> int | None:
    """Records between the pipeline and the ends of its topics; None when it or its broker does not tell."""
    positions = {
        TopicPartition(topic, partition): offset
        for topic, of_topic in status.offsets.items()
        for partition, offset in of_topic.items()
    }
    if not positions:
        return None
    options = RawOptions(api_timeout_ms=BROKER_TIMEOUT_MS, connect_timeout_ms=BROKER_TIMEOUT_MS)
    try:
        with RawClient(status.bootstrap, options) as client:
            there = client.describe(dict.fromkeys(at.topic for at in positions))
            # Also partitions that the pipeline has not come to yet.
            wanted = {
                TopicPartition(name, number) for name, info in there.items() for number in info.partitions
            }
            ends = client.offsets(dict.fromkeys(sorted(wanted), LATEST))
    except RawError:
        return None
    return sum(max(0, end.offset - positions.get(at, 0)) for at, end in ends.items())
