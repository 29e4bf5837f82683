"""What is not served: the Python clients stop at once and say why, and the broker's log has a line for it."""

from __future__ import annotations

import asyncio
import re
import warnings
from itertools import count
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from tests.integration.raw import HANG_SECONDS, RawClient, create_topic

from penstock.services.refusals import NEXT_GENERATION_GROUPS, SHARE_GROUPS, TRANSACTIONS
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey

with warnings.catch_warnings():
    # The library reads its schemas through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The libraries' own deprecated calls are not this project's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TOPIC = "refused"
_names = (f"client-{number}" for number in count())
_LINE = re.compile(r"WARNING .* refused (\S+) of client '([^']*)' at 127\.0\.0\.1: (.*)")


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        with RawClient(process.port) as client:
            create_topic(client, TOPIC, 1)
        yield process


@pytest.fixture
def name() -> str:
    """A client id that nobody had before: what is told once is told of it."""
    return next(_names)


def told(process: BrokerProcess, name: str) -> list[tuple[str, str]]:
    """(API, why) of every line about a client."""
    lines = map(_LINE.search, process.log_path.read_text().splitlines())
    return [(line[1], line[3]) for line in lines if line is not None and line[2] == name]


@pytest.mark.ecosystem("confluent-kafka")
def test_confluent_kafka_learns_that_there_are_no_transactions(running: BrokerProcess, name: str) -> None:
    settings = {"bootstrap.servers": running.bootstrap, "client.id": name, "transactional.id": name}
    with pytest.raises(KafkaException) as raised:
        Producer(settings).init_transactions(HANG_SECONDS)
    error = raised.value.args[0]
    assert error.fatal()
    assert TRANSACTIONS in error.str()
    assert told(running, name) == [("FindCoordinator", TRANSACTIONS)]


@pytest.mark.ecosystem("confluent-kafka")
def test_confluent_kafka_learns_that_groups_are_classic(running: BrokerProcess, name: str) -> None:
    settings = {"group.id": name, "group.protocol": "consumer"}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "client.id": name, **settings})
    consumer.subscribe([TOPIC])
    message = consumer.poll(HANG_SECONDS)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in error.str()
    consumer.close()
    assert told(running, name) == [("ConsumerGroupHeartbeat", NEXT_GENERATION_GROUPS)]


@pytest.mark.ecosystem("confluent-kafka")
def test_confluent_kafka_learns_that_there_are_no_share_groups(running: BrokerProcess, name: str) -> None:
    consumer = ShareConsumer({"bootstrap.servers": running.bootstrap, "client.id": name, "group.id": name})
    consumer.subscribe([TOPIC])
    with pytest.raises(KafkaException) as raised:
        consumer.poll(timeout=HANG_SECONDS)
    assert raised.value.args[0].fatal()
    assert "ShareGroupHeartbeat" in raised.value.args[0].str()
    assert told(running, name) == [("ShareGroupHeartbeat", SHARE_GROUPS)]


@pytest.mark.ecosystem("confluent-kafka")
def test_confluent_kafka_asks_for_nothing_that_is_not_advertised(running: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    with pytest.raises(KafkaException) as raised:
        admin.describe_user_scram_credentials().result(HANG_SECONDS)
    assert raised.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE


@pytest.mark.ecosystem("aiokafka")
def test_aiokafka_learns_that_there_are_no_transactions(running: BrokerProcess, name: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=running.bootstrap, client_id=name, transactional_id=name
        )
        try:
            await asyncio.wait_for(producer.start(), HANG_SECONDS)
        finally:
            await producer.stop()

    with pytest.raises(AiokafkaError, match="TransactionalIdAuthorizationFailed"):
        asyncio.run(start())
    assert told(running, name) == [("FindCoordinator", TRANSACTIONS)]


@pytest.mark.ecosystem("kafka-python")
def test_kafka_python_learns_that_there_are_no_transactions(running: BrokerProcess, name: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=running.bootstrap,
        client_id=name,
        transactional_id=name,
        max_block_ms=1000 * HANG_SECONDS,
    )
    with pytest.raises(KafkaPythonError, match=r"Could not find a coordinator.*Unsupported") as raised:
        producer.init_transactions()
    assert not isinstance(raised.value, KafkaTimeoutError)
    producer.close(timeout=0)
    assert told(running, name) == [("FindCoordinator", TRANSACTIONS)]


@pytest.mark.ecosystem("kafka-python")
def test_kafka_python_asks_for_nothing_that_is_not_advertised(running: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=running.bootstrap)
    with pytest.raises(KafkaPythonError, match=r"(?i)version"):
        admin.describe_user_scram_credentials()
    admin.close()


@pytest.mark.parametrize(
    ("api_key", "version", "api", "why"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, "ADD_PARTITIONS_TO_TXN", "it is not served"),
        (ApiKey.PRODUCE, 2, "PRODUCE", "versions 3 to 13 are served"),
        (ApiKey.FETCH, 3, "FETCH", "versions 4 to 18 are served"),
        (ApiKey.METADATA, 99, "METADATA", "versions 0 to 13 are served"),
    ],
)
def test_who_asks_for_it_all_the_same_is_told_of_in_the_log(
    api_key: ApiKey, version: int, api: str, why: str, running: BrokerProcess, name: str
) -> None:
    head = int(api_key).to_bytes(2) + version.to_bytes(2) + bytes(4) + len(name).to_bytes(2) + name.encode()
    for _ in range(2):
        with RawClient(running.port) as client:
            client.send_bytes(len(head).to_bytes(4) + head)
            with pytest.raises(ConnectionError):
                client.receive()
    assert told(running, name) == [(api, why)]
