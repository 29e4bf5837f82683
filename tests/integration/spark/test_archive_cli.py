"""`penstock pipeline archive` as users run it, and what it survives: kill -9, a full disk, Ctrl-C."""

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.commands import COMMAND, environment, penstock, penstock_here
from tests.integration.spark.lakes import ALake, is_writing
from tests.integration.spark.topics import Sent, Topics
from tests.integration.test_archive_retention import (
    EXPIRES,
    MESSAGES,
    REQUIRED,
    SETTINGS,
    fill,
    wait_for_rounds,
)
from tests.integration.test_retention import offsets, wait_for

from penstock.spark.pipelines.archive.manifest import entry_path
from penstock.testing import broker

ARCHIVE = ("pipeline", "archive")
# Two cores are enough, and a small heap starts faster.
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=600m")


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> ALake:
    return ALake(spark, topics.bootstrap, tmp_path / "lake")


@contextmanager
def running_archive(lake: ALake, *arguments: str, **more: object) -> Iterator["subprocess.Popen[str]"]:
    extra = {"PENSTOCK_STATE_DIR": str(lake.folder.parent / "state")}
    process = subprocess.Popen(
        [*COMMAND, *ARCHIVE, "--to", str(lake.folder), *SMALL, *arguments],
        env=environment(lake.bootstrap, extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_while_it_runs(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def test_kill_9_in_the_middle_loses_nothing_and_doubles_nothing(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    total = 6000
    topics.produce(topic, [Sent(b"%d" % n, key=b"k", partition=n % 3) for n in range(total)])
    # Right after a commit: files may have moved or not, the broker and the user have heard of it or not.
    second = lake.folder / entry_path(2)
    with running_archive(lake, "--topic", topic, "--round-rows", "600") as process:
        wait_while_it_runs(process, second.exists)
        process.kill()
        process.wait()
    after = lake.manifest
    assert after.number >= 2
    assert len(lake.rows(topic)) == sum(file.rows for file in after.files.values()) < total
    lake.archive(topic)
    check_all(lake, topic, total)


def check_all(lake: ALake, topic: str, total: int) -> None:
    values = [int(row.value) for row in lake.rows(topic)]
    assert (len(values), set(values)) == (total, set(range(total)))
    lake.check()


@pytest.mark.soak  # three Sparks
def test_kill_9_twice_before_and_behind_a_commit(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    total = 30_000
    topics.produce(topic, [Sent(b"%d" % n, key=b"k", partition=n % 3) for n in range(total)])
    rounds = ("--topic", topic, "--round-rows", "3000")

    # While a round is written to staging, with nothing committed.
    with running_archive(lake, *rounds) as process:
        wait_while_it_runs(process, lambda: is_writing(lake.folder))
        process.kill()
        process.wait()
    in_the_first = lake.manifest.number
    # Right after a commit: files may have moved or not, the broker and the user have heard of it or not.
    third = lake.folder / entry_path(in_the_first + 3)
    with running_archive(lake, *rounds) as process:
        wait_while_it_runs(process, third.exists)
        process.kill()
        process.wait()
    after = lake.manifest
    assert after.number >= in_the_first + 3
    assert len(lake.rows(topic)) == sum(file.rows for file in after.files.values()) < total

    done = penstock(
        *ARCHIVE, "--topic", topic, "--to", str(lake.folder), *SMALL, "--json", bootstrap=lake.bootstrap
    )
    assert (done.code, done.err) == (0, "")
    assert done.json["topics"][0]["rows_total"] == total
    check_all(lake, topic, total)


@pytest.mark.soak
def test_a_full_disk_is_one_line_and_the_same_command_goes_on_later(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    noise = random.Random(1)
    topics.produce(topic, [Sent(noise.randbytes(10_000)) for _ in range(1200)])
    limit = 4_000_000  # no file may get larger: to who writes it, the disk is full

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with running_archive(lake, "--topic", topic, preexec_fn=small_files) as process:
        out, said = process.communicate()
    assert process.returncode == 1, (out, said)
    assert said.count("\n") == 1, said
    assert said.startswith(
        f"penstock: {lake.folder} is full (File too large): nothing of this round was archived"
    )
    assert lake.lake.list("") == []
    done = penstock(*ARCHIVE, "--topic", topic, "--to", str(lake.folder), *SMALL, bootstrap=lake.bootstrap)
    assert done.code == 0, done.err
    assert "archived 1,200 rows (12.0 MB" in done.out
    assert len(lake.rows(topic)) == 1200
    lake.check()


@pytest.mark.soak
def test_ctrl_c_ends_it_between_rounds_with_a_summary(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 1000)
    with running_archive(lake, "--topic", topic, "--every", "1h") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("round 1: 1,000 rows, ")
        os.kill(process.pid, signal.SIGINT)
        out, said = process.communicate()
    assert process.returncode == 0, said
    assert said == "stopping after this round; once more to stop at once\n"
    assert "archived 1,000 rows" in out
    assert f"{topic}" in out
    assert "0:1000" in out
    lake.check()
    assert [stored.path for stored in lake.lake.list("_penstock") if stored.path.endswith("lock")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--topic", "never-made"), 1, "there is no topic never-made"),
        ((), 2, "nothing to archive: give --topic NAME or --pattern REGEX"),
        (("--topic", "t", "--once", "--every", "1m"), 2, "contradict each other"),
        (("--topic", "t", "--every", "soon"), 2, "--every 'soon' is not a time"),
        (("--topic", "t", "--round-size", "much"), 2, "--round-size 'much' is not a size"),
        (("--topic", "t", "--compression", "rar"), 1, "compression 'rar' is unknown"),
        (("--topic", "t", "--kafka", "fetch.max.byte=1"), 1, "fetch.max.bytes"),
    ],
)
def test_what_cannot_be_done_is_one_line_before_spark_starts(
    lake: ALake, arguments: tuple[str, ...], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no Java that it could start with."""
    no_java = {"JAVA_HOME": "/nowhere"}
    archive = (*ARCHIVE, "--to", str(lake.folder), *arguments)
    done = penstock_here(capfd, *archive, bootstrap=lake.bootstrap, extra=no_java)
    assert done.code == code
    assert words in done.said()


def test_nobody_at_the_broker_s_address_is_one_line(lake: ALake, capfd: pytest.CaptureFixture[str]) -> None:
    done = penstock_here(
        capfd, *ARCHIVE, "--topic", "t", "--to", str(lake.folder), "--kafka", "default.api.timeout.ms=500",
        bootstrap="127.0.0.1:1",
    )  # fmt: skip
    assert done.code == 1
    assert "127.0.0.1:1" in done.said()


def test_retention_waits_until_the_command_has_archived(spark: SparkSession, tmp_path: Path) -> None:
    with broker(SETTINGS) as process:
        lake, topics = ALake(spark, process.bootstrap, tmp_path / "lake"), Topics(process.bootstrap)
        topic = topics.create("held", config={**EXPIRES, REQUIRED: "true"}, exact=True)
        fill(process, topic)
        wait_for_rounds(process, "witness")
        assert offsets(process, topic) == (0, MESSAGES)
        lake.archive(topic)
        wait_for(lambda: offsets(process, topic) == (MESSAGES, MESSAGES))
        assert [int(row.value) for row in lake.rows(topic)] == list(range(MESSAGES))


def test_a_broker_that_did_not_hear_of_the_archive_hears_of_it_from_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.pipelines.archive.source import Source

    with broker(SETTINGS) as process:
        lake, topics = ALake(spark, process.bootstrap, tmp_path / "lake"), Topics(process.bootstrap)
        topic = topics.create("held", config={**EXPIRES, REQUIRED: "true"}, exact=True)
        fill(process, topic)
        monkeypatch.setattr(Source, "tell", lambda *_: [])
        lake.archive(topic)
        wait_for_rounds(process, "witness")
        assert offsets(process, topic) == (0, MESSAGES)
        monkeypatch.undo()
        assert lake.archive(topic).rows == 0
        wait_for(lambda: offsets(process, topic) == (MESSAGES, MESSAGES))
