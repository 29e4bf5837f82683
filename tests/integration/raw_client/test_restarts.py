"""A broker that is killed and comes back: what is read or written over it is neither lost nor doubled."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.raw import RawClient as PlainClient
from tests.integration.raw import create_topic, make_batch, read_log, values_in, wait_until

from penstock.client.raw import Delivery, RawClient, RawOptions, TopicPartition
from penstock.testing import BrokerProcess

PARTITIONS = 2
BATCHES = 400
PER_BATCH = 5


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    try:
        with PlainClient(process.port) as client:
            assert create_topic(client, "t", PARTITIONS).error_code == 0
        yield process
    finally:
        process.stop()


def batch_of(number: int) -> bytearray:
    return make_batch([b"%d" % (number * PER_BATCH + index) for index in range(PER_BATCH)])


def test_a_fetch_goes_on_where_it_was(running: BrokerProcess) -> None:
    at = TopicPartition("t", 0)
    options = RawOptions(fetch_bytes=4096)
    with RawClient(running.bootstrap, options) as client:
        with client.producer() as producer:
            for number in range(BATCHES):
                producer.send(at, batch_of(number))
        values: list[bytes | None] = []
        answers = 0
        for fetched in client.fetch(at, 0, BATCHES * PER_BATCH):
            values += values_in(fetched.records)
            answers += 1
            if answers in (2, 5):
                running.kill()
                # It comes back while the client is already trying.
                starting = threading.Thread(target=running.start)
                starting.start()
            if answers in (4, 7):
                starting.join()
    assert values == [b"%d" % number for number in range(BATCHES * PER_BATCH)]
    assert answers > 8


def test_a_producer_neither_loses_nor_repeats(running: BrokerProcess) -> None:
    deliveries: list[Delivery] = []
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with RawClient(running.bootstrap) as client, client.producer() as producer:
                for number in range(BATCHES):
                    at = TopicPartition("t", number % PARTITIONS)
                    deliveries.append(producer.send(at, batch_of(number)))
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for share in (5, 2):
        wait_until(
            lambda goal=BATCHES // share: len(deliveries) >= goal or bool(failures), "some are written"
        )
        running.kill()
        running.start()
    writer.join()
    assert not failures
    for partition in range(PARTITIONS):
        mine = range(partition, BATCHES, PARTITIONS)
        expected = [b"%d" % (number * PER_BATCH + index) for number in mine for index in range(PER_BATCH)]
        assert read_log(running.port, "t", partition) == expected
        offsets = [delivery.offset for delivery in deliveries if delivery.at.partition == partition]
        assert offsets == list(range(0, len(expected), PER_BATCH))
