"""`make soak PART=sparkmem`: the memory of Spark's driver while a topic grows tenfold and is read from end to end.

    python -m benchmarks.sparkmem [--scale 0.01] [--dir DIR]

Records never pass through the driver, so its memory must not follow the topic. In `local[2]` the driver's JVM runs the
tasks too, which is harder: what a task holds must not follow the topic either. The JVM's heap has its full size from
the start, as its resident part would otherwise wander with the collector's moods. So resident memory shows what grows
beside the heap, and what a collection leaves shows what grows in it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.peers import PenstockPeer

from benchmarks import machine, topics
from benchmarks.spark_session import SOURCE, read_all, reader, session
from benchmarks.spark_topics import PARTITIONS, Shape, fill, rows_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

STEPS = 10
STEP_BYTES = 1e9
SHAPE = Shape(1_000_000, (1000, 1000))
HEAP = "1g"
HEAP_BYTES = 1 << 30
FIXED_HEAP = {"spark.driver.extraJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch"}
# At each size, so that a figure is not one moment's; more at the first, while the JVM compiles and its heap settles.
READS = 2
FIRST_READS = 5
# At ten times the topic memory may be so many times what it was: code caches and arenas still settle.
FLAT = 1.15
# In the heap: Spark remembers its last jobs, a few kB for each.
HEAP_GROWTH_BYTES_MAX = 50e6
SAMPLE_S = 0.1
MB = 1e6
COLUMNS = ("rows", "driver", "its python", "its jvm", "live in heap", "driver peak", "workers peak")


class Used(NamedTuple):
    """Anonymous memory, in bytes."""

    python: int
    jvm: int
    workers: int

    @property
    def driver(self) -> int:
        return self.python + self.jvm


class Sizes(NamedTuple):
    rows: int
    now: Used
    heap_live: int
    driver_peak: int
    workers_peak: int


def used(jvm_pid: int, broker_pid: int) -> Used:
    """The driver's Python and JVM, and the Python workers below the JVM."""
    broker = set(machine.process_tree(broker_pid))
    workers = 0
    for pid in machine.process_tree(jvm_pid):
        if pid != jvm_pid and pid not in broker:
            workers += _anonymous(pid)
    return Used(_anonymous(os.getpid()), _anonymous(jvm_pid), workers)


def _anonymous(pid: int) -> int:
    # Python workers come and go.
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


@contextmanager
def peaks(jvm_pid: int, broker_pid: int) -> Iterator[list[int]]:
    """The most that driver and workers have while something runs: looked at from a thread."""
    seen, over = [0, 0], threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            now = used(jvm_pid, broker_pid)
            seen[:] = max(seen[0], now.driver), max(seen[1], now.workers)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def jvm_of(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to its JVM


def measure(spark: SparkSession, broker: PenstockPeer, topic: str, reads: int) -> Sizes:
    jvm = jvm_of(spark)
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    rows = reader(spark, SOURCE, broker.bootstrap, topic).load()
    with peaks(jvm_pid, broker.pid) as seen:
        for _ in range(reads):
            read_all(rows)
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return Sizes(rows_in(broker.bootstrap, topic), used(jvm_pid, broker.pid), int(heap.getUsed()), *seen)


def say(text: str) -> None:
    print(text, flush=True)


def run(scale: float, directory: Path | None) -> bool:
    rows_per_step = int(STEP_BYTES / SHAPE.row_bytes * scale)
    say(
        f"reads of a growing topic of 1 kB rows, {PARTITIONS} partitions, local[2], heap {HEAP}; RssAnon in MB"
    )
    say(" ".join(f"{name:>13}" for name in COLUMNS))
    found: list[Sizes] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-sparkmem-", dir=directory) as folder,
        PenstockPeer(work_dir=Path(folder) / "broker") as broker,
        session(Path(folder), heap=HEAP, connector=False, more=FIXED_HEAP) as spark,
    ):
        topics.create_topic(broker.bootstrap, "growing", partitions=PARTITIONS)
        for step in range(STEPS):
            fill(broker.bootstrap, "growing", SHAPE, rows_per_step, seed=step)
            at = measure(spark, broker, "growing", READS if step else FIRST_READS)
            found.append(at)
            figures = (
                at.now.driver,
                at.now.python,
                at.now.jvm,
                at.heap_live,
                at.driver_peak,
                at.workers_peak,
            )
            say(" ".join((f"{at.rows:>13,}", *(f"{value / MB:>13.0f}" for value in figures))))
    return judge(found)


def judge(found: list[Sizes]) -> bool:
    """Whether the last size has what the first had; says so, too."""
    # Without the heap: its fixed size would hide how much the rest has grown.
    growth = {
        "driver without heap": (found[-1].now.driver - HEAP_BYTES) / (found[0].now.driver - HEAP_BYTES),
        "its peak": (found[-1].driver_peak - HEAP_BYTES) / (found[0].driver_peak - HEAP_BYTES),
        "workers peak": found[-1].workers_peak / found[0].workers_peak,
    }
    heap_growth = found[-1].heap_live - found[0].heap_live
    flat = all(times <= FLAT for times in growth.values()) and heap_growth <= HEAP_GROWTH_BYTES_MAX
    for name, times in growth.items():
        say(f"{name}: {times:.2f} times what it was at a tenth of the rows (at most {FLAT})")
    say(f"live in the JVM's heap: {heap_growth / MB:+.0f} MB (at most {HEAP_GROWTH_BYTES_MAX / MB:+.0f})")
    say("flat" if flat else "NOT flat")
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak PART=sparkmem")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the bytes: 1 to 10 GB at 1")
    parser.add_argument("--dir", type=Path, help="where the broker keeps its data (default: the temp dir)")
    options = parser.parse_args()
    return 0 if run(options.scale, options.dir) else 1


if __name__ == "__main__":
    sys.exit(main())
