"""Transactions on a live broker, by clients of the first kind (librdkafka): SPEC D3, M8."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"penstock.transactions.enable": "true"}) as process:
        yield process


def create(running: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result()


def producer(running: BrokerProcess, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": transactional_id})
    made.init_transactions(30)
    return made


def read(
    running: BrokerProcess, topic: str, isolation: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """Everything up to the end of each partition, as that reader sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[bytes] = []
    ends: set[int] = set()
    try:
        while len(ends) < partitions:
            message = consumer.poll(60)
            assert message is not None, "nothing, and no end"
            if message.error():
                ends.add(message.partition())
            else:
                found.append(message.value())
    finally:
        consumer.close()
    return sorted(found)


def test_what_is_committed_shows_and_what_is_aborted_does_not(running: BrokerProcess) -> None:
    create(running, "ended", 3)
    writer = producer(running, "ended")
    for number, committed in enumerate([True, False, True, False, False, True]):
        writer.begin_transaction()
        for partition in range(3):
            writer.produce("ended", b"%d-%d" % (number, partition), partition=partition)
        assert writer.flush(30) == 0  # else librdkafka throws away what is aborted
        writer.commit_transaction(30) if committed else writer.abort_transaction(30)
    expected = sorted(b"%d-%d" % (number, partition) for number in (0, 2, 5) for partition in range(3))
    assert read(running, "ended", partitions=3) == expected
    everything = read(running, "ended", "read_uncommitted", partitions=3)
    assert set(expected) < set(everything)


def test_an_open_transaction_holds_back_readers_of_what_is_committed(running: BrokerProcess) -> None:
    create(running, "open")
    writer, plain = producer(running, "open"), Producer({"bootstrap.servers": running.bootstrap})
    writer.begin_transaction()
    writer.produce("open", b"inside", partition=0)
    assert writer.flush(30) == 0
    plain.produce("open", b"behind", partition=0)
    assert plain.flush(30) == 0
    assert read(running, "open") == []
    assert read(running, "open", "read_uncommitted") == [b"behind", b"inside"]
    writer.commit_transaction(30)
    assert read(running, "open") == [b"behind", b"inside"]


def test_the_older_of_two_with_one_transactional_id_is_fenced_and_nothing_of_it_shows(
    running: BrokerProcess,
) -> None:
    create(running, "fenced")
    old = producer(running, "fenced")
    old.begin_transaction()
    old.produce("fenced", b"old", partition=0)
    assert old.flush(30) == 0
    new = producer(running, "fenced")
    new.begin_transaction()
    new.produce("fenced", b"new", partition=0)
    new.commit_transaction(30)
    with pytest.raises(KafkaException):
        old.commit_transaction(30)
    assert read(running, "fenced") == [b"new"]


def test_what_was_committed_and_aborted_stays_so_over_a_kill(running: BrokerProcess) -> None:
    create(running, "killed")
    writer = producer(running, "killed")
    for value, committed in ((b"yes", True), (b"no", False)):
        writer.begin_transaction()
        writer.produce("killed", value, partition=0)
        writer.commit_transaction(30) if committed else writer.abort_transaction(30)
    writer.begin_transaction()
    writer.produce("killed", b"open", partition=0)
    assert writer.flush(30) == 0
    with running.down():
        pass
    assert read(running, "killed") == [b"yes"]
    writer.commit_transaction(60)
    assert read(running, "killed") == [b"open", b"yes"]


def test_offsets_inside_a_transaction_count_when_it_is_committed(running: BrokerProcess) -> None:
    create(running, "input")
    plain = Producer({"bootstrap.servers": running.bootstrap})
    plain.produce("input", b"1", partition=0)
    assert plain.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "chain", "enable.auto.commit": False}
    )
    place, writer = TopicPartition("input", 0), producer(running, "chain")
    for offset, committed in ((1, True), (5, False)):
        writer.begin_transaction()
        writer.send_offsets_to_transaction(
            [TopicPartition("input", 0, offset)], consumer.consumer_group_metadata(), 30
        )
        writer.commit_transaction(30) if committed else writer.abort_transaction(30)
        assert consumer.committed([place], 30)[0].offset == 1
    consumer.close()
