"""One Spark with its own Kafka connector beside ours, and one broker of each kind, for all tests here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients.spark.world import World
from tests.integration.spark.sessions import ignore_open_sockets, running_spark
from tools.peers import spark_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_open_sockets(items, _HERE)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    jars = ",".join(str(jar) for jar in spark_kafka.jars())
    # What is refused on purpose would fill pages.
    with running_spark("clients", {"spark.jars": jars}, log_level="OFF") as session:
        yield session


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
