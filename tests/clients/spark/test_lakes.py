"""Archive and replay on a real HDFS and a real S3-compatible server (`make clients`)."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.clients.spark.pipelines import LOOPBACK, content, pipeline, started
from tests.clients.spark.world import CODECS, mixed
from tests.integration.commands import environment
from tests.integration.spark.topics import Topics
from tools.peers.hdfs import Hdfs
from tools.peers.s3 import S3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.spark.world import World

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]
ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    uri: str
    conf: dict[str, str]
    files: Callable[[], list[str]]


@contextmanager
def on_hdfs() -> Iterator[Place]:
    with Hdfs() as hdfs:
        yield Place(f"{hdfs.uri}/lake", {}, lambda: hdfs.files("/lake"))


@contextmanager
def on_s3() -> Iterator[Place]:
    with S3() as s3:
        bucket = s3.make_bucket("lake")
        yield Place(f"{bucket}/some/where", s3.spark_settings(), lambda: s3.files("lake"))


@pytest.fixture(params=[on_hdfs, on_s3], ids=["hdfs", "s3a"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with request.param() as found:
        yield found


@pytest.fixture
def topics(world_of: Callable[[str], World]) -> Topics:
    return Topics(world_of("penstock").bootstrap, prefix="lake")


def produce(topics: Topics, topic: str, first: int) -> None:
    for number, codec in enumerate(CODECS):
        part = ROWS // len(CODECS)
        topics.produce(topic, mixed(first + number * part, part, 3), **{"compression.type": codec})


def test_there_and_back(world_of: Callable[[str], World], topics: Topics, place: Place) -> None:
    """Archived in two runs, replayed in two: every record once, in its partition and order, byte for byte."""
    world = world_of("penstock")
    topic, again = topics.create(partitions=4), topics.prefix + ".again"
    for run in (1, 2):
        produce(topics, topic, run * ROWS)
        to_lake = ("archive", "--topic", topic, "--to", place.uri, "--once")
        assert pipeline(world.bootstrap, *to_lake, conf=place.conf)["rows"] == ROWS
        from_lake = ("replay", "--from", place.uri, "--topic", again)
        assert pipeline(world.bootstrap, *from_lake, conf=place.conf)["rows"] == ROWS
        sent = world.there(topic)
        assert len(sent) == run * ROWS
        assert content(world.there(again)) == content(sent)
    assert pipeline(world.bootstrap, *to_lake, conf=place.conf)["rows"] == 0
    names = place.files()
    assert any(f"topic={topic}/date=2023-11-14/hour=22/" in name for name in names)
    assert not [name for name in names if "/staging/" in name or name.endswith("/lock")]


def test_killed_and_run_again(world_of: Callable[[str], World], topics: Topics, place: Place) -> None:
    """The driver dies while its round is in staging: the next run has every record, each once."""
    world = world_of("penstock")
    topic, again = topics.create(partitions=4), topics.prefix + ".again"
    produce(topics, topic, 0)
    to_lake = ("archive", "--topic", topic, "--to", place.uri, "--once")
    with started(world.bootstrap, *to_lake, conf=place.conf) as process:
        while not any("/staging/" in name for name in place.files()):
            assert process.poll() is None, process.communicate()
        process.kill()
    assert not [name for name in place.files() if "/manifest/" in name], (
        "it had committed before it was killed"
    )
    assert pipeline(world.bootstrap, *to_lake, conf=place.conf)["topics"][0]["rows_total"] == ROWS
    pipeline(world.bootstrap, "replay", "--from", place.uri, "--topic", again, conf=place.conf)
    assert content(world.there(again)) == content(world.there(topic))
    assert not [name for name in place.files() if "/staging/" in name]


def test_a_name_is_given_once_also_to_one_who_looked_before_it_was_taken(place: Place) -> None:
    """In a process of its own: the jars of S3 are for a JVM that begins with them."""
    command = [sys.executable, "-m", "tests.clients.spark.created_twice", place.uri, json.dumps(place.conf)]
    done = subprocess.run(
        command, env=environment(extra=LOOPBACK), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [name for name in place.files() if name.endswith("/a")]
