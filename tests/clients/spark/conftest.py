"""One Spark with its own Kafka connector beside ours, and one broker of each kind, for all tests here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients.spark.world import World
from tools.peers import spark_kafka

import penstock.spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            # py4j leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed.*socket:ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:Exception ignored in.*:pytest.PytestUnraisableExceptionWarning"
                )
            )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = penstock.spark.session(
        "clients",
        master="local[2]",
        config={
            "spark.jars": ",".join(str(jar) for jar in spark_kafka.jars()),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "Europe/Paris",
        },
        log_level="OFF",  # what is refused on purpose would fill pages
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def world_of() -> Iterator[Callable[[str], World]]:
    """By kind, each started when it is first asked for: tests run in any order."""
    with ExitStack() as stack:
        started: dict[str, World] = {}

        def get(kind: str) -> World:
            if kind not in started:
                started[kind] = stack.enter_context(World(kind))
            return started[kind]

        yield get
