"""A Spark for tests: what every session of theirs has in common, and the warnings of py4j that are nobody's."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import penstock.spark
from penstock.spark.session import LOG_LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

# For every Spark that tests start, those of commands included: they live too briefly for the optimising compiler, and
# its threads take nearly half of the processor time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@contextmanager
def running_spark(
    name: str, config: Mapping[str, str] | None = None, log_level: str = LOG_LEVEL
) -> Iterator[SparkSession]:
    session = penstock.spark.session(
        name,
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "Europe/Paris",
            **(config or {}),
        },
        log_level=log_level,
    )
    yield session
    session.stop()


def ignore_open_sockets(items: list[pytest.Item], below: Path) -> None:
    """py4j leaves its sockets to the garbage collector."""
    for item in items:
        if below in item.path.parents:
            for warning in (
                "ignore:unclosed.*socket:ResourceWarning",
                "ignore:Exception ignored in.*:pytest.PytestUnraisableExceptionWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(warning))
