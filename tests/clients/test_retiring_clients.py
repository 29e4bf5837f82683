"""A partition is retired under producers of three clients, plain and idempotent, which are never restarted (R7).

Their queues are short, or so long that whatever happens to the partition happens while they hold records for it.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import penstock
from tests.integration.raw import wait_until
from tests.integration.retiring.keyed import GroupReader, KeyedLoad, ProgramLoad, Writing, ends

from penstock.client.admin.admin import Admin
from penstock.testing import BrokerProcess, broker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clients
HERE = Path(__file__).parent
_numbers = itertools.count()
PROGRAMS = {
    "java": (
        "java", "-Xmx128M", "-XX:+UseSerialGC", "-cp", f"{HERE}/java/target/lib/*", "penstock.clients.KeyedProducer"
    ),
    "kafka-python": (sys.executable, f"{HERE}/kafka_python/keyed_producer.py"),
}  # fmt: skip
DEEP = 100_000
SETTINGS = {
    "penstock.retire.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


@pytest.mark.parametrize("queued", [5_000, DEEP], ids=["short", "deep"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("client", ["librdkafka", *PROGRAMS])
def test_every_message_arrives_once_while_a_partition_is_retired(
    client: str, idempotent: bool, queued: int, running: BrokerProcess
) -> None:
    bootstrap, topic = running.bootstrap, f"orders-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    with (
        GroupReader(bootstrap, topic, f"readers-of-{topic}") as reader,
        load_of(client, bootstrap, topic, idempotent=idempotent, queued=queued) as load,
    ):
        load.until_more(500, partition=2)
        done = penstock("topic", "alter", topic, "--retire", "--partitions", "2", bootstrap=bootstrap)
        assert done.code == 0, done.err
        frozen = ends(bootstrap, topic, 2)
        load.until_more(2000, partition=2)
        assert ends(bootstrap, topic, 2) == frozen
        told = len(load.acknowledged)
        wait_until(lambda: reader.count >= told, f"{told} values read")
        assert reader.reordered({2: 0}) == set()
        if queued == DEEP:
            running.pause()
            try:
                load.until_full()
            finally:
                running.resume()  # or whoever stops the load waits for ever
        # What readers have left goes. Whoever asks sees two partitions; who writes goes on as before.
        Admin(bootstrap).delete_records(topic, {2: frozen[1]})
        wait_until(
            lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 2, "two partitions"
        )
        for partition in (0, 1, 2):
            load.until_more(1000, partition=partition)
        load.__exit__()
        reader.check(load)
        wait_until(lambda: reader.assigned == [0, 1], "the group to share out what is left")


def load_of(client: str, bootstrap: str, topic: str, *, idempotent: bool, queued: int) -> Writing:
    if client == "librdkafka":
        return KeyedLoad(bootstrap, topic, idempotent, queued_max=queued)
    return ProgramLoad(bootstrap, topic, idempotent, queued_max=queued, program=PROGRAMS[client])
