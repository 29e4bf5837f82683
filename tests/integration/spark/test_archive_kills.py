"""The archive killed again and again, at whatever it was doing: `make soak PART=kills`.

By turns the driver, the JVM below it (where the executors of a local master live) and the Python workers that read.
"""

import os
import random
import signal
import subprocess
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.commands import penstock
from tests.integration.spark.lakes import ALake, is_writing
from tests.integration.spark.test_archive_cli import (
    ARCHIVE,
    SMALL,
    running_archive,
    wait_while_it_runs,
)
from tests.integration.spark.topics import Sent, Topics

KILLS = int(os.environ.get("PENSTOCK_ARCHIVE_KILLS", "20"))
PER_RUN = 10_000
ROUND_ROWS = "1000"


def descendants(pid: int) -> list[int]:
    """Children first, then theirs."""
    found = [pid]
    for parent in found:
        with suppress(FileNotFoundError):
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            found += [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return found[1:]


def runs(pid: int, program: str) -> bool:
    with suppress(FileNotFoundError):
        return program in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def kill(process: subprocess.Popen[str], whom: str) -> None:
    if whom == "driver":
        process.kill()
        return
    program = {"JVM": "java", "workers": "pyspark.daemon"}[whom]
    for pid in [child for child in descendants(process.pid) if runs(child, program)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.soak
def test_no_row_is_lost_or_doubled_however_often_it_is_killed(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    lake = ALake(spark, topics.bootstrap, tmp_path / "lake")
    topic = topics.create(partitions=3)
    chance = random.Random(20)
    sent = 0
    killed_with: list[int] = []
    for number, whom in zip(range(KILLS), cycle(["driver", "workers", "JVM"]), strict=False):
        topics.produce(
            topic, [Sent(b"%d" % n, key=b"k", partition=n % 3) for n in range(sent, sent + PER_RUN)]
        )
        sent += PER_RUN
        rounds = lake.manifest.number + chance.randint(0, 4)
        with running_archive(lake, "--topic", topic, "--round-rows", ROUND_ROWS) as process:

            def in_the_midst(rounds: int = rounds) -> bool:
                return lake.manifest.number >= rounds and (chance.random() < 0.1 or is_writing(lake.folder))

            wait_while_it_runs(process, in_the_midst)
            kill(process, whom)
            process.wait()  # without its workers it may give up or go on to the end: neither may matter
        killed_with.append(sum(file.rows for file in lake.manifest.files.values()))
        print(
            f"kill {number + 1} of the {whom}: {killed_with[-1]:,} of {sent:,} rows archived",
            flush=True,
        )
        rows = [int(row.value) for row in lake.rows(topic)]
        assert len(rows) == len(set(rows)) == killed_with[-1]
    assert killed_with[0] < killed_with[-1] < sent, "the kills came while it worked"

    done = penstock(
        *ARCHIVE, "--topic", topic, "--to", str(lake.folder), *SMALL, "--json", bootstrap=lake.bootstrap
    )
    assert (done.code, done.err) == (0, "")
    rows = [int(row.value) for row in lake.rows(topic)]
    assert (len(rows), set(rows)) == (sent, set(range(sent)))
    lake.check()
    print(f"{KILLS} kills, {sent:,} rows: none lost, none twice")
