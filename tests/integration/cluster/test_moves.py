"""Partitions are added, brokers drained and added, all of it under load."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.cluster.harness import LASTING, Cluster
from tests.integration.cluster.watch import Watch

from penstock.testing import cluster

GB = 1 << 30
PREFILL_VALUE_BYTES = 100_000
# Gigabytes are copied.
PATIENCE_S = 1500


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(4, LASTING, directory=tmp_path) as processes:
        yield Cluster(processes, partitions=4)


def test_partitions_are_added_under_load(three: Cluster) -> None:
    with three.load() as load:
        three.grow(6)
        three.until_whole()
        load.grow(6)
        load.until_more(100)
    load.report().check()
    three.until_replicas_are_equal()


@pytest.mark.soak
def test_a_broker_is_drained_and_filled_again_under_load(four: Cluster) -> None:
    drain_and_fill(four)


@pytest.mark.soak
def test_a_broker_with_gigabytes_is_drained_and_filled_again_under_load(four: Cluster) -> None:
    prefill(four, 2 * GB)
    drain_and_fill(four)


def drain_and_fill(four: Cluster) -> None:
    drained = four.leader()
    with four.load() as load:
        with Watch(four) as watch:
            four.set_broker(drained, "penstock.broker.draining", "true")
            four.until(lambda: four.is_settled_with(drained, False), "nothing is left there", PATIENCE_S)
            four.set_broker(drained, "penstock.broker.draining", "false")
            four.until(lambda: four.is_settled_with(drained, True), "it has its share again", PATIENCE_S)
        load.until_more(100)
    load.report().check()
    # Some partition had one more replica than it should have, for a while, and none ever one less.
    assert watch.replicas_max == four.replica_count + 1
    assert watch.in_sync_min >= four.replica_count
    four.until_replicas_are_equal()


def prefill(four: Cluster, size_bytes: int) -> None:
    """A topic of its own, so that what the load finds in its own is only what it sent; drained all the same."""
    name = f"archive-of-{four.topic}"
    four.create(name, four.partition_count)
    producer = Producer(
        {"bootstrap.servers": four.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    failed: list[str] = []
    for number in range(size_bytes // PREFILL_VALUE_BYTES + 1):
        value = os.urandom(PREFILL_VALUE_BYTES)
        while True:
            try:
                producer.produce(
                    name,
                    value,
                    partition=number % four.partition_count,
                    on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush() == 0
    assert failed == []
