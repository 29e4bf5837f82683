"""`penstock pipeline replay` as its users run it."""

import json
from pathlib import Path

import pytest
from tests.integration.commands import penstock_here
from tests.integration.spark.conftest import Command
from tests.integration.spark.hand_lake import HandLake
from tests.integration.spark.topics import Topics


@pytest.fixture
def lake(topics: Topics, tmp_path: Path) -> HandLake:
    return HandLake(topics.bootstrap, tmp_path / "lake")


def test_a_replay_and_what_it_says(topics: Topics, command: Command, lake: HandLake, tmp_path: Path) -> None:
    source, target = topics.create("source", partitions=2), f"{topics.prefix}.target"
    topics.count_up(source, 0, 30, partitions=2)
    lake.take(source)
    done = command(
        "pipeline", "replay", "--from", str(lake.folder), "--topic", target, "--master", "local[1]", "--json",
        extra={"PENSTOCK_STATE_DIR": str(tmp_path / "state")},
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    summary = json.loads(done.out)
    assert (summary["source_topic"], summary["topic"], summary["rows"]) == (source, target, 30)
    assert summary["partitions"] == {
        "0": {"rows": 15, "skipped": 0, "last_offset": 14},
        "1": {"rows": 15, "skipped": 0, "last_offset": 14},
    }
    assert [int(record.value or b"") for record in topics.consume(target, 30)] == [
        *range(0, 30, 2),
        *range(1, 30, 2),
    ]
    assert list((tmp_path / "state" / "pipelines").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--tags", " , "], 2, "--tags names no tag"),
        (["--since", "soon"], 2, "is not a time"),
        (["--until", "soon"], 2, "--until 'soon' is not a time"),
        (["--since", "1h", "--until", "2h"], 2, "--since is not before --until"),
        (
            ["--since", "2h", "--until", "1h", "--append"],
            2,
            "would append everything once more: give --since 1",
        ),
        (["--config", "x"], 2, "--config 'x' is not a setting"),
        (["--kafka", "akcs=1"], 1, "did you mean acks?"),
        (["--compression", "lzma"], 1, "compression.type=lzma"),
        (["--partition", "7"], 1, "has no partition 7"),
        (["--source-topic", "x"], 1, "holds no topic x, only"),
        (["--no-create"], 1, "there is no topic"),
        (["--from", "s3://bucket/lake"], 1, "write s3a://bucket/lake"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    topics: Topics,
    lake: HandLake,
    arguments: list[str],
    code: int,
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = topics.create("source")
    topics.count_up(source, 0, 1)
    lake.take(source)
    done = penstock_here(
        capfd, "pipeline", "replay", "--from", str(lake.folder), "--topic", f"{topics.prefix}.new", *arguments,
        bootstrap=topics.bootstrap, extra={"JAVA_HOME": "/nowhere"},
    )  # fmt: skip
    assert done.code == code
    assert said in done.said()
