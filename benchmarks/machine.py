"""The machine under the benchmark: what it is, what a process used of it, and how to start a run from rest."""

from __future__ import annotations

import mmap
import os
import platform
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
HUGE_PAGE_BYTES = 2 << 20
WARM_LIMIT_BYTES = 4 << 30
UTIME_FIELD, STIME_FIELD = 11, 12  # in /proc/pid/stat, counted behind the parenthesised command


def description() -> dict[str, str]:
    """What a reader needs to know to judge the figures."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory_kb = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "memory": f"{memory_kb / 1e6:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
    }


def _lines(path: str | Path) -> list[str]:
    return Path(path).read_text().splitlines()


def process_tree(pid: int) -> Iterator[int]:
    """The process and its descendants: a broker may run workers."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from process_tree(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its live descendants."""
    return sum(own_cpu_seconds(member) for member in process_tree(pid))


def own_cpu_seconds(pid: int) -> float:
    """User and system time of one process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[UTIME_FIELD]) + int(fields[STIME_FIELD])) / CLOCK_TICKS_PER_S


def memory_bytes(pid: int, field: str) -> int:
    """A line of /proc/pid/status, such as RssAnon or VmHWM, over the process and its descendants."""
    total_kb = 0
    for member in process_tree(pid):
        for line in _lines(f"/proc/{member}/status"):
            if line.startswith(field + ":"):
                total_kb += int(line.split()[1])
    return total_kb * 1024


def settle(needed_bytes: float = 0) -> None:
    """Bring the machine to rest before a run.

    Writes what earlier runs left dirty, so that nobody pays for another's write-back; and touches as much free
    memory as the run will fill with page cache. A virtual machine may have handed free pages back to its
    host, and faulting them in again costs more than the broker: seconds per GB, and not the same in each run.
    """
    os.sync()
    size_bytes = int(min(needed_bytes, WARM_LIMIT_BYTES)) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    if size_bytes:
        with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            memory[::4096] = bytes(size_bytes // 4096)


def forget_cached(directory: Path) -> None:
    """Put the files below the directory out of the page cache: what is read next comes from the disk."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def raise_file_limit() -> int:
    """Let this process and the brokers that it starts open as many files as the system allows."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
