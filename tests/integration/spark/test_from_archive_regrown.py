"""`consume --from-archive` of a partition that was retired under writers, removed and grown again (A5, R7)."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.commands import Done, penstock
from tests.integration.raw import wait_until
from tests.integration.spark.hand_lake import HandLake
from tests.integration.spark.test_stream_retired import SETTINGS, SHORT, grown

from penstock import Admin, Producer
from penstock.client.errors import ClientError
from penstock.testing import BrokerProcess, broker

TOPIC = "orders"


@pytest.fixture
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


def read(running: BrokerProcess, lake: HandLake) -> Done:
    return penstock(
        "consume", TOPIC, "--from-archive", str(lake.folder), "--no-follow", bootstrap=running.bootstrap
    )


def begins(running: BrokerProcess, partition: int) -> int:
    with suppress(ClientError):  # it has no leader yet, and librdkafka remembers that for a while
        return Admin(running.bootstrap).earliest(TOPIC, [partition])[partition]
    return -1


def test_it_waits_for_nothing_that_never_was_and_misses_nothing(
    running: BrokerProcess, tmp_path: Path
) -> None:
    """The new one begins behind what writers left in the old one, which no reader ever saw there."""
    admin, lake = Admin(running.bootstrap), HandLake(running.bootstrap, tmp_path / "lake")
    admin.create(TOPIC, partitions=3, configs=SHORT)
    with Producer(running.bootstrap) as producer:
        for number in range(30):
            producer.send(TOPIC, b"old", partition=number % 3)
        producer.flush()
        lake.take(TOPIC)
        admin.retire_partitions(TOPIC, 2)
        for _ in range(5):
            producer.send(TOPIC, b"moved", partition=2)
    admin.delete_records(TOPIC, {2: 10})
    wait_until(lambda: len(admin.partition_indexes(TOPIC)) == 2, "the partition to leave the metadata")
    wait_until(lambda: grown(admin, TOPIC), "the retired partition to be removed")
    wait_until(lambda: begins(running, 2) > 10, "the new partition, behind what was moved")
    empty = read(running, lake)
    assert (empty.code, empty.err, sorted(empty.out.split())) == (0, "", ["moved"] * 5 + ["old"] * 30)
    with Producer(running.bootstrap) as producer:
        producer.send(TOPIC, b"new", partition=2)
    assert sorted(read(running, lake).out.split()) == ["moved"] * 5 + ["new"] + ["old"] * 30
