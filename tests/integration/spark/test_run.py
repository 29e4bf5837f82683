"""`penstock pipeline run`: the user's own job."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.commands import penstock_here
from tests.integration.spark.conftest import Command
from tests.integration.spark.topics import Topics

from penstock.spark.pipelines.run import run
from penstock.spark.pipelines.status import running

JOB = """
import sys
import beside

orders = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
orders = orders.option("subscribe", sys.argv[1]).load()
print(orders.count(), sys.argv[2:], __name__, beside.NAME)
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))


Runner = Callable[..., int]


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> Runner:
    """Run a script in the shared session."""

    def start(text: str, *arguments: str) -> int:
        script = tmp_path / "job.py"
        script.write_text(text)
        return run(spark, script, arguments, bootstrap=topics.bootstrap)

    return start


def test_the_command_passes_arguments_and_exit_codes(
    topics: Topics, command: Command, tmp_path: Path
) -> None:
    topic = topics.create(config={"retention.ms": "-1"})
    topics.count_up(topic, 0, 30)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    done = command("pipeline", "run", "--master", "local[2]", str(tmp_path / "job.py"), topic, "--json", "-x")
    assert (done.code, done.err) == (7, "")
    assert done.out == "30 ['--json', '-x'] __main__ beside\n"


def test_a_file_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = penstock_here(capfd, "pipeline", "run", str(tmp_path / "no.py"))
    assert done.code == 2
    assert "no.py does not exist" in done.said()


def test_an_error_of_spark_shows_the_line_of_the_job(job: Runner, capfd: pytest.CaptureFixture[str]) -> None:
    assert job("x = 1\nspark.sql('SELECT nope FROM range(3)')\n") == 1
    said = capfd.readouterr().err
    own = said[said.index("Traceback") :]
    assert own.count("  File ") == 1
    assert 'job.py", line 2, in <module>' in own
    assert "UNRESOLVED_COLUMN" in own


@pytest.mark.parametrize(("end", "code"), [("0", 0), ("", 0), ("3", 3), ("'tired'", 1)])
def test_exit_codes(job: Runner, capfd: pytest.CaptureFixture[str], end: str, code: int) -> None:
    assert job(f"import sys\nsys.exit({end})\n") == code
    assert ("tired" in capfd.readouterr().err) == (code == 1)


def test_a_job_is_listed_while_it_runs_with_how_far_its_queries_are(
    job: Runner, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create(config={"retention.ms": "-1"})
    topics.count_up(topic, 0, 20)
    text = """
import sys, threading
from penstock.spark.pipelines.status import running

stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
stream = stream.option("subscribe", sys.argv[1]).option("startingOffsets", "earliest").load()
query = stream.writeStream.format("noop").trigger(processingTime="100 milliseconds").start()
while not (status := running()[0]).rows:
    threading.Event().wait(0.1)
query.stop()
print(status.kind, status.name, status.rows, status.offsets, status.topics == [sys.argv[1]])
"""
    assert job(text, topic) == 0
    assert capfd.readouterr().out == f"run job.py 20 {{'{topic}': {{0: 20}}}} True\n"
    assert running() == []
