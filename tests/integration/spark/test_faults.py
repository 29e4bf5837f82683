"""A broker that dies while a task is in the middle of its range: the rows are right all the same."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from tests.integration.spark.topics import Topics

from penstock.testing import BrokerProcess, broker

POLL_S = 0.05
ROWS = 5_000
# Together far more than the sockets and buffers between broker and gate hold.
VALUE_BYTES = 1_000
# So small that most of the range is still to be fetched when the first rows are out.
SMALL_FETCH = {"kafka.max.partition.fetch.bytes": "65536"}


@pytest.fixture
def mortal() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(POLL_S)


def gate(folder: Path) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """Lets rows pass, but stops after the first of them until the test opens the gate."""
    reached, opened = folder / "reached", folder / "opened"

    def passing(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield row
            if not opened.exists():
                reached.touch()
                while not opened.exists():
                    time.sleep(POLL_S)

    return passing


class Killer(threading.Thread):
    """Kills the broker as soon as the gate is reached, starts it again, and opens the gate."""

    def __init__(self, victim: BrokerProcess, folder: Path) -> None:
        super().__init__(daemon=True)  # a test that fails before the gate must not wait for it at the end
        self._victim = victim
        self._folder = folder
        self.killed = False

    def run(self) -> None:
        wait_for((self._folder / "reached").exists)
        self._victim.kill()
        self.killed = True
        # First the gate: the task is to find the broker gone, and wait for it.
        (self._folder / "opened").touch()
        self._victim.start()


def test_a_broker_killed_and_started_again_while_it_is_read(
    spark: SparkSession, mortal: BrokerProcess, tmp_path: Path
) -> None:
    topics = Topics(mortal.bootstrap)
    topic = topics.create()
    topics.produce_many(topic, ROWS, VALUE_BYTES)
    killer = Killer(mortal, tmp_path)
    killer.start()
    frame = topics.read(spark, topic).options(**SMALL_FETCH).load().select("offset", "value")
    rows = frame.rdd.mapPartitions(gate(tmp_path)).collect()
    killer.join()
    assert killer.killed
    assert [row.offset for row in rows] == list(range(ROWS))
    assert [int(row.value) for row in rows] == list(range(ROWS))


def test_a_broker_killed_and_started_again_while_it_is_written_to(
    spark: SparkSession, mortal: BrokerProcess, tmp_path: Path
) -> None:
    topics = Topics(mortal.bootstrap)
    topic = topics.create()
    killer = Killer(mortal, tmp_path)
    killer.start()
    frame = spark.range(0, ROWS, numPartitions=1).selectExpr(f"lpad(id, {VALUE_BYTES}, '0') AS value")
    gated = spark.createDataFrame(frame.rdd.mapPartitions(gate(tmp_path)), frame.schema)
    writer = gated.write.format("penstock").mode("append")
    writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", topic).save()
    killer.join()
    assert killer.killed
    # No task was repeated, and the producer's own retries are idempotent: each row is there once, in order.
    assert [int(sent.value or b"") for sent in topics.consume(topic, ROWS)] == list(range(ROWS))
    assert topics.read(spark, topic).load().count() == ROWS
