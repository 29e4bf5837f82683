"""Spark's own Kafka connector, as jars for a session of the installed PySpark."""

from __future__ import annotations

from pathlib import Path

from tools.peers import maven

POM = Path(__file__).with_name("spark-kafka-pom.xml")


def jars() -> list[Path]:
    """For `spark.jars`; downloads them when they are not there yet."""
    version = maven.pinned(POM, "connector.version")
    return sorted(maven.jars(POM, f"spark-kafka-{version}").glob("*.jar"))
