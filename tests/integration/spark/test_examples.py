"""The jobs under examples/ run as `penstock pipeline run` runs them, and find in the data what is in it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines.run import check_script, run

EXAMPLES = Path(__file__).parents[3] / "examples"
# Times of records are long ago: they must not expire while the job runs.
KEPT = {"retention.ms": "-1"}


class Job:
    """One example in the shared session, with what it needs to run again."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self._spark = spark
        self._topics = topics
        self._folder = folder

    def run(self, name: str, *arguments: str) -> None:
        script = check_script(str(EXAMPLES / name))
        assert run(self._spark, script, arguments, bootstrap=self._topics.bootstrap) == 0

    @property
    def checkpoint(self) -> tuple[str, str]:
        return "--checkpoint", str(self._folder / "checkpoint")

    @property
    def output(self) -> str:
        return str(self._folder / "output")


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    return Job(spark, topics, tmp_path)


def test_every_example_is_in_the_readme_and_tested_here() -> None:
    readme, tests = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 3
    for name in names:
        assert f"pipeline run examples/{name}" in readme
        assert f'"{name}"' in tests


def test_log_aggregation(job: Job, topics: Topics) -> None:
    logs, counts = topics.create("logs", 2, KEPT), topics.create("counts", 1)
    lines = [
        *(f"2025-01-31T12:00:{second:02}Z shop 200 {second}" for second in range(40)),
        "2025-01-31T12:00:10Z shop 503 900",
        "2025-01-31T12:00:20Z search 200 7",
        "2025-01-31T12:01:05Z shop 200 3",
        "2025-01-31T12:05:00Z shop 200 1",  # makes the minutes before final
    ]
    at_ms = 1_738_324_800_000  # 2025-01-31T12:00:00Z
    sent = [Sent(line.encode(), partition=n % 2, timestamp=at_ms) for n, line in enumerate(lines)]
    topics.produce(logs, [*sent, Sent(b"a stack trace", timestamp=at_ms), Sent(b"", timestamp=at_ms)])
    arguments = ("--from", logs, "--to", counts, *job.checkpoint, "--once")
    job.run("log_aggregation.py", *arguments)
    found = topics.consume(counts, 4)
    rows = [json.loads(message.value or b"") for message in found]
    assert [message.key for message in found] == [row["service"].encode() for row in rows]
    assert sorted((row["minute"], row["service"], row["lines"], row["failed"]) for row in rows) == [
        ("2025-01-31T12:00Z", "search", 1, 0),
        ("2025-01-31T12:00Z", "shop", 41, 1),
        ("2025-01-31T12:00Z", "unreadable", 2, 0),
        ("2025-01-31T12:01Z", "shop", 1, 0),
    ]
    slow = {(row["minute"], row["service"]): row.get("p95_milliseconds") for row in rows}
    assert slow["2025-01-31T12:00Z", "shop"] == 38  # the 39th of 41: one took 900 ms, and is none of the 95 %
    assert slow["2025-01-31T12:00Z", "unreadable"] is None
    # The same job again goes on from its checkpoint: only what became final since is written.
    topics.produce(logs, [Sent(b"2025-01-31T12:20:00Z shop 200 1", timestamp=at_ms)])
    job.run("log_aggregation.py", *arguments)
    assert json.loads(topics.consume(counts, 5)[-1].value or b"")["minute"] == "2025-01-31T12:05Z"


def test_sessionisation(job: Job, topics: Topics, spark: SparkSession) -> None:
    topic = topics.create("clicks", 1, KEPT)

    def click(user: str, page: str, time: str) -> Sent:
        return Sent(json.dumps({"user": user, "page": page, "at": f"2025-01-31T{time}Z"}).encode())

    topics.produce(
        topic,
        [
            click("ann", "/", "12:00:00"),
            click("bob", "/", "12:05:00"),
            click("ann", "/tea", "12:29:00"),
            click("ann", "/pay", "12:58:59"),  # 29:59 later: the same visit
            click("ann", "/again", "13:29:00"),  # 30:01 later: another one
            Sent(b"no JSON"),
            click("bob", "/end", "18:00:00"),  # ends all others; its own visit goes on
        ],
    )
    job.run("sessionisation.py", "--from", topic, "--to", job.output, *job.checkpoint, "--once")
    rows = spark.read.parquet(job.output).orderBy("began").collect()

    def utc(moment: datetime) -> str:
        return moment.astimezone(UTC).strftime("%H:%M:%S")

    assert [
        (row.user, utc(row.began), utc(row.last_click), row.clicks, row.landed_on, row.left_from)
        for row in rows
    ] == [
        ("ann", "12:00:00", "12:58:59", 3, "/", "/pay"),
        ("bob", "12:05:00", "12:05:00", 1, "/", "/"),
        ("ann", "13:29:00", "13:29:00", 1, "/again", "/again"),
    ]


def test_dead_letters(
    job: Job, topics: Topics, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("dead", 2, KEPT)

    def letter(number: int, origin: bytes, error: bytes) -> Sent:
        headers = (("__connect.errors.topic", origin), ("__connect.errors.exception.message", error))
        return Sent(b"letter %d" % number, None, number % 2, 1_738_324_800_000 + number, headers)

    topics.produce(
        topic,
        [
            *(letter(number, b"orders", b"no customer %d" % number) for number in range(5)),
            letter(5, b"clicks", b"no page"),
            Sent(b"from elsewhere", timestamp=1_738_324_800_000),
        ],
    )
    job.run("dead_letters.py", "--from", topic, "--to", job.output)
    rows = spark.read.json(job.output).collect()
    assert [(row.origin, row.error, row.letters, row.value) for row in rows] == [
        ("orders", "no customer N", 5, "letter 4"),
        ("clicks", "no page", 1, "letter 5"),
        ("unknown", "unknown", 1, "from elsewhere"),
    ]
    assert rows[0].place == "0:2"
    assert rows[0].first < rows[0].last
    job.run("dead_letters.py", "--from", topic)
    assert "no customer N" in capsys.readouterr().out
