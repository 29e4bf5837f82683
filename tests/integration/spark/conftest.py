"""One Spark and one broker for all tests here: a session takes five seconds and half a gigabyte to start."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from tests.integration.commands import Done, penstock_here
from tests.integration.spark.sessions import ignore_open_sockets, running_spark
from tests.integration.spark.topics import Topics

from penstock.testing import BrokerProcess, broker

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_open_sockets(items, _HERE)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with running_spark("tests") as session:
        yield session


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerProcess]:
    # Many tests write records with old timestamps: retention would take them away when it next looks.
    with broker({"log.retention.ms": "-1"}) as process:
        yield process


@pytest.fixture
def topics(running: BrokerProcess, request: pytest.FixtureRequest) -> Topics:
    """Topics of the shared broker, with names that no other test has."""
    return Topics(running.bootstrap, prefix=request.node.name)


class Command(Protocol):
    def __call__(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Done: ...


@pytest.fixture
def command(spark: SparkSession, running: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> Command:
    """`penstock …` in this process, with the Spark that is here; the tutorial runs each with one of its own."""

    def run(*arguments: str, extra: Mapping[str, str] | None = None) -> Done:
        partitions = spark.conf.get("spark.sql.shuffle.partitions")
        with patch.object(SparkSession, "stop", lambda session: None):
            done = penstock_here(capfd, *arguments, bootstrap=running.bootstrap, extra=extra)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        return done

    return run
