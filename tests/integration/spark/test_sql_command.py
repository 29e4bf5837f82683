"""`penstock pipeline sql` and `status` as people run them."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.commands import COMMAND, environment, penstock, penstock_here
from tests.integration.spark.conftest import Command
from tests.integration.spark.topics import Sent, Topics

from penstock.testing import BrokerProcess

# The times of the records are long ago.
KEPT = {"retention.ms": "-1"}
LOCAL = ("--master", "local[2]")


def test_rows_as_lines_of_json(topics: Topics, command: Command, tmp_path: Path) -> None:
    topic = topics.create(config=KEPT)
    topics.produce(topic, [Sent(b'{"id": 1}'), Sent(b"broken"), Sent(b'{"id": 2}')])
    query = f"SELECT id, offset FROM `{topic}`"
    done = command(
        *("pipeline", "sql", query, "--once", "--json", "--schema", "id INT", *LOCAL),
        extra={"PENSTOCK_STATE_DIR": str(tmp_path)},
    )
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"id": 1, "offset": 0},
        {"id": 2, "offset": 2},
    ]


def test_a_running_query_is_listed_and_ends_on_ctrl_c(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create("in", config=KEPT), topics.create("out")
    topics.produce(source, [Sent(b'{"id": %d}' % n) for n in range(5)])
    state = {"PENSTOCK_STATE_DIR": str(tmp_path)}
    query = (
        "pipeline",
        "sql",
        f"SELECT id FROM `{source}`",
        "--to",
        f"topic:{target}",
        "--schema",
        "id INT",
        *LOCAL,
    )
    running = subprocess.Popen(
        [*COMMAND, *query],
        env=environment(topics.bootstrap, state),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        # Said after the rows and the status file have been written.
        assert "5 rows read" in running.stderr.readline()
        assert len(topics.consume(target, 5)) == 5
        (status,) = penstock("pipeline", "status", "--json", extra=state).json
        assert (status["kind"], status["pid"], status["topics"]) == ("sql", running.pid, [source])
        assert (status["rows"], status["lag"], status["offsets"]) == (5, 0, {source: {"0": 5}})
        os.kill(running.pid, signal.SIGINT)
        out, _ = running.communicate()
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert "read 5 rows in 1 batch and " in out
    assert f"to topic:{target}, run it again to go on" in out
    assert penstock("pipeline", "status", extra=state).out.startswith("no pipelines run here")


def test_a_query_that_is_wrong_is_one_line(command: Command) -> None:
    done = command("pipeline", "sql", "SELECT id FROM range(1) WHERE (", *LOCAL)
    assert done.code == 1
    assert "(line 1, column " in done.said()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--once", "--every", "1s"], "--once and --every contradict each other"),
        (["--every", "often"], "--every 'often' is not a time"),
        (["--to", "out"], "Write topic:out for a topic"),
        (["--value", "xml"], "--value 'xml': use json, text"),
        (["--watermark", "at"], "write --watermark 'at 10 minutes'"),
        (["--option", "x"], "write --option name=value"),
    ],
)
def test_wrong_use_needs_no_spark(options: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = penstock_here(capfd, "pipeline", "sql", "SELECT * FROM t", *options, bootstrap="127.0.0.1:1")
    assert done.code == 2
    assert words in done.said()


def test_no_broker_is_said_before_spark_starts(capfd: pytest.CaptureFixture[str]) -> None:
    done = penstock_here(capfd, "pipeline", "sql", "SELECT * FROM t", bootstrap="127.0.0.1:1")
    assert done.code == 1
    assert "127.0.0.1:1" in done.said()


def test_a_topic_that_is_not_there_is_said_before_spark_starts(
    running: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no Java that it could start with."""
    query = ("pipeline", "sql", "SELECT * FROM ordres")
    no_java = {"JAVA_HOME": str(tmp_path)}
    done = penstock_here(capfd, *query, bootstrap=running.bootstrap, extra=no_java)
    assert (done.code, "there is no topic ordres" in done.said()) == (1, True)


def test_no_java(running: BrokerProcess, tmp_path: Path) -> None:
    extra = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    done = penstock("pipeline", "sql", "SELECT * FROM range(1)", bootstrap=running.bootstrap, extra=extra)
    assert done.code == 1
    assert "Spark needs Java" in done.said()


def test_nothing_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = {"PENSTOCK_STATE_DIR": str(tmp_path)}
    assert "no pipelines run here" in penstock_here(capfd, "pipeline", "status", extra=state).out
    assert penstock_here(capfd, "pipeline", "status", "--json", extra=state).json == []
