"""A broker with two listeners: clients of each are told its address, and no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.testing import BrokerProcess, broker
from penstock.testing.process import BrokerStartError

TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
BOTH = ("CLIENTS", "INTERNAL")


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    with broker(TWO) as running:
        yield running


def test_both_are_open_under_their_names(process: BrokerProcess) -> None:
    assert tuple(process.listeners) == BOTH
    assert len(set(process.listeners.values())) == 2
    assert process.bootstrap == process.listeners["CLIENTS"]


@pytest.mark.parametrize("name", BOTH)
def test_clients_are_told_the_address_of_the_listener_they_asked(process: BrokerProcess, name: str) -> None:
    address = process.listeners[name]
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    told = admin.list_topics(timeout=60).brokers.values()
    assert [f"{metadata.host}:{metadata.port}" for metadata in told] == [address]
    nodes = admin.describe_cluster(request_timeout=60).result().nodes
    assert [f"{node.host}:{node.port}" for node in nodes] == [address]


@pytest.mark.parametrize(("writes", "reads"), [BOTH, BOTH[::-1]])
def test_what_comes_in_by_one_goes_out_by_the_other(process: BrokerProcess, writes: str, reads: str) -> None:
    topic = f"from-{writes}"
    producer = Producer({"bootstrap.servers": process.listeners[writes], "log_level": 0})
    producer.produce(topic, b"hello")
    assert producer.flush() == 0
    group = {"group.id": f"at-{reads}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": process.listeners[reads], "log_level": 0, **group})
    try:
        consumer.subscribe([topic])
        message = None
        while message is None:  # the group is made meanwhile
            message = consumer.poll(1)
        assert (message.error(), message.value()) == (None, b"hello")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": "SSL://127.0.0.1:0"}, "listeners has SSL, which speaks SSL"),
        ({**TWO, "inter.broker.listener.name": ""}, "inter.broker.listener.name"),
    ],
)
def test_what_is_not_served_is_refused_before_anything_is_touched(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    process = BrokerProcess(tmp_path / "data", settings)
    with pytest.raises(BrokerStartError, match=said):
        process.start()
    assert not process.data_dir.exists()
