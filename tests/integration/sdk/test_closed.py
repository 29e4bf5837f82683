"""What is closed says so, and whatever the SDK raises is a ClientError in its own words."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, ClientError, Consumer, Producer

TOPIC = "closed"


@pytest.fixture(scope="module")
def closed(cluster: Cluster) -> tuple[Producer, Consumer]:
    Admin(cluster.bootstrap).create(TOPIC, exist_ok=True)
    producer, consumer = Producer(cluster.bootstrap), Consumer(cluster.bootstrap, TOPIC, group=TOPIC)
    producer.close()
    consumer.close()
    return producer, consumer


USES: dict[str, Callable[[Producer, Consumer], Any]] = {
    "send": lambda producer, _: producer.send(TOPIC, "x"),
    "send_many": lambda producer, _: producer.send_many(TOPIC, ["x"]).result(),
    "partitions": lambda producer, _: producer.partitions(TOPIC),
    "receive": lambda _, consumer: consumer.receive(1),
    "receive_many": lambda _, consumer: consumer.receive_many(1),
    "for": lambda _, consumer: next(iter(consumer)),
    "run": lambda _, consumer: consumer.run(print),
    "commit": lambda _, consumer: consumer.commit(),
    "pause": lambda _, consumer: consumer.pause(TOPIC, 0),
    "resume": lambda _, consumer: consumer.resume(TOPIC, 0),
    "seek": lambda _, consumer: consumer.seek(TOPIC, 0, 0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_is_closed_says_so(closed: tuple[Producer, Consumer], use: Callable[..., Any]) -> None:
    with pytest.raises(ClientError, match="is closed: make another one"):
        use(*closed)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda at: Admin("127.0.0.1:1"), "give the bootstrap address of one that runs"),
        (lambda at: Admin(at).create("none", partitions=0), "a topic has one at least"),
        (lambda at: Admin(at).create("none", replicas=9), "no more replicas than brokers"),
        (lambda at: Producer(at).send(TOPIC, "x", timestamp="soon"), "neither a datetime nor"),
        (lambda at: Producer(at).send(TOPIC, "x", partition=99).result(), "has no such partition"),
    ],
)
def test_errors_speak_of_what_the_sdk_has(cluster: Cluster, wrong: Callable[[str], Any], said: str) -> None:
    Admin(cluster.bootstrap).create(TOPIC, exist_ok=True)
    with pytest.raises(ClientError, match=said) as raised:
        wrong(cluster.bootstrap)
    assert "--" not in str(raised.value), "no options of the command line"
