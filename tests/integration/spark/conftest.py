"""One Spark and one broker for all tests here: a session takes five seconds and half a gigabyte to start."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Topics

import penstock.spark
from penstock.testing import BrokerProcess, broker

_HERE = Path(__file__).parent
# For every Spark that tests start, those of commands included: they live too briefly for the optimising compiler, and
# its threads take nearly half of the processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


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
        "tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "Europe/Paris",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerProcess]:
    # Many tests write records with old timestamps: retention would take them away when it next looks.
    with broker({"log.retention.ms": "-1"}) as process:
        yield process


@pytest.fixture
def topics(running: BrokerProcess, request: pytest.FixtureRequest) -> Topics:
    """Topics of the shared broker, with names that no other test has."""
    return Topics(running.bootstrap, prefix=request.node.name)
