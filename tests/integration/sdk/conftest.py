"""One broker for the SDK's tests: Penstock, or Apache Kafka with PENSTOCK_SDK_PEER=kafka to compare."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import pytest

from penstock import Admin
from penstock.testing import broker

_names = count(1)
_AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


class Cluster(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if os.environ.get("PENSTOCK_SDK_PEER") == "kafka":
        from tools.peers import ApacheKafka, apache_kafka

        apache_kafka.JVM_OPTIONS = ("-Xmx384m", "-Xms384m", *apache_kafka.JVM_OPTIONS[2:])
        with ApacheKafka({"auto.create.topics.enable": "false", **_AT_ONCE}) as kafka:
            yield kafka
        return
    with broker({"auto.create.topics.enable": "false", **_AT_ONCE}) as running:
        yield running


@pytest.fixture
def new_topic(cluster: Cluster) -> Callable[[int], str]:
    def make(partitions: int = 1) -> str:
        name = f"topic-{os.getpid()}-{next(_names)}"
        Admin(cluster.bootstrap).create(name, partitions=partitions)
        return name

    return make
