"""The archive and a partition that is retired, leaves its topic and is grown again (A5, R7), with a real broker.

What a round would do is planned from a real source; no Spark is needed for that.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.integration.raw import wait_until
from tests.integration.spark.test_stream_retired import SETTINGS, SHORT, grown

from penstock import Admin, Producer
from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.lines import Line
from penstock.spark.pipelines.archive.planning import Gap, Plan, plan
from penstock.spark.pipelines.archive.source import Source, id_of
from penstock.spark.pipelines.archive.standing import Held, standing
from penstock.spark.planning import Range
from penstock.testing import BrokerProcess, broker

TOPIC = "orders"
LAST = TopicPartition(TOPIC, 2)


@pytest.fixture
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


def planned(source: Source, archived: dict[TopicPartition, int]) -> Plan:
    found, _ = source.find()
    logs = source.logs(found.values())
    held = {at: Held(Line([(0, end)], marks=[(0, end)])) for at, end in archived.items()}
    stands = standing(source, logs, held)
    return plan(logs, archived, {name: id_of(info) for name, info in found.items()}, standing=stands)


def test_it_knows_what_it_missed_and_does_not_wait_for_what_never_was(running: BrokerProcess) -> None:
    admin = Admin(running.bootstrap)
    admin.create(TOPIC, partitions=3, configs=SHORT)
    with Producer(running.bootstrap) as producer:
        for number in range(30):
            producer.send(TOPIC, b"old", partition=number % 3)
        producer.flush()
        admin.retire_partitions(TOPIC, 2)
        for _ in range(5):
            producer.send(TOPIC, b"moved", partition=2)
    admin.alter_configs(TOPIC, {"retention.ms": "500"})
    wait_until(lambda: len(admin.partition_indexes(TOPIC)) == 2, "the partition to leave the metadata")
    admin.alter_configs(TOPIC, {"retention.ms": "86400000"})
    with closing(Source(running.bootstrap, [TOPIC])) as source:
        others = {at: log.latest for at, log in source.logs(source.find()[0].values()).items()}
        assert planned(source, others | {LAST: 5}).gaps == (Gap(LAST, 5, 10),)
        assert not planned(source, others | {LAST: 10})
        wait_until(lambda: grown(admin, TOPIC), "the retired partition to be removed")
        assert not planned(source, others | {LAST: 10}), "idle: there is nothing to wait for"
        with Producer(running.bootstrap) as producer:
            producer.send(TOPIC, b"new", partition=2)
        for archived in (others, others | {LAST: 10}):
            made = planned(source, archived)
            assert (made.ranges, made.gaps, made.parted) == ((Range(LAST, 15, 16),), (), ())
            assert source.epochs(made.ranges)[LAST][-1][1] == 16
