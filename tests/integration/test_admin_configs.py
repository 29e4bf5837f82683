"""Settings, offsets and deletions through the clients people use, against a running broker."""

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.testing.process import BrokerProcess, broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own files the old way
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as KafkaPythonResource
    from kafka.admin import ConfigResourceType

WAIT_SECONDS = 30


@pytest.fixture
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture
def admin(running: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": running.bootstrap})


def done(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_SECONDS)


def created(admin: AdminClient, name: str, **config: str) -> str:
    done(admin.create_topics([NewTopic(name, 1, 1, config=config)]))
    return name


def produced(running: BrokerProcess, topic: str, timestamps: list[int]) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
    for timestamp in timestamps:
        producer.produce(topic, b"x", partition=0, timestamp=timestamp)
        producer.flush(WAIT_SECONDS)
    assert len(producer) == 0


def shown(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    return dict(done(admin.describe_configs([ConfigResource(kind, name)])))


def incremental(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    key: str,
    operation: AlterConfigOpType,
    value: str | None,
) -> None:
    entry = ConfigEntry(key, value, incremental_operation=operation)
    done(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]))


def refuses(producer: Producer, topic: str, size: int) -> bool:
    """Whether a message of that size is refused; waits for the answer."""
    errors: list[Any] = []
    producer.produce(topic, b"x" * size, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    (error,) = errors
    return error is not None


def test_topic_settings_change_at_once_and_survive_a_kill(running: BrokerProcess, admin: AdminClient) -> None:
    created(admin, "t", **{"retention.ms": "5000"})
    producer = Producer({"bootstrap.servers": running.bootstrap})
    assert not refuses(producer, "t", 5000)
    incremental(admin, ResourceType.TOPIC, "t", "max.message.bytes", AlterConfigOpType.SET, "2000")
    assert refuses(producer, "t", 5000)
    incremental(admin, ResourceType.TOPIC, "t", "cleanup.policy", AlterConfigOpType.APPEND, "compact")
    running.kill()
    running.start()
    configs = shown(admin, ResourceType.TOPIC, "t")
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].source) == (
        "2000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["retention.ms"].value == "5000"
    incremental(admin, ResourceType.TOPIC, "t", "max.message.bytes", AlterConfigOpType.DELETE, None)
    incremental(admin, ResourceType.TOPIC, "t", "cleanup.policy", AlterConfigOpType.DELETE, None)
    assert not refuses(Producer({"bootstrap.servers": running.bootstrap}), "t", 5000)


def test_broker_settings_change_at_once_and_survive_a_kill(
    running: BrokerProcess, admin: AdminClient
) -> None:
    created(admin, "t")
    incremental(admin, ResourceType.BROKER, "1", "message.max.bytes", AlterConfigOpType.SET, "3000")
    assert refuses(Producer({"bootstrap.servers": running.bootstrap}), "t", 5000)
    running.kill()
    running.start()
    assert shown(admin, ResourceType.TOPIC, "t")["max.message.bytes"].value == "3000"
    assert refuses(Producer({"bootstrap.servers": running.bootstrap}), "t", 5000)
    assert shown(admin, ResourceType.BROKER, "1")["message.max.bytes"].source == (
        ConfigSource.DYNAMIC_BROKER_CONFIG.value
    )
    incremental(admin, ResourceType.BROKER, "1", "message.max.bytes", AlterConfigOpType.DELETE, None)
    assert not refuses(Producer({"bootstrap.servers": running.bootstrap}), "t", 5000)


def test_bad_settings_are_refused_with_the_reason(admin: AdminClient) -> None:
    created(admin, "t")
    with pytest.raises(KafkaException, match="Not a number of type LONG"):
        incremental(admin, ResourceType.TOPIC, "t", "retention.ms", AlterConfigOpType.SET, "soon")
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        incremental(admin, ResourceType.BROKER, "1", "broker.id", AlterConfigOpType.SET, "2")


@pytest.mark.parametrize("way", [True, False], ids=["incremental", "all at once"])
def test_kafka_python_alters_settings_both_ways(
    running: BrokerProcess, admin: AdminClient, way: bool
) -> None:
    created(admin, "t", **{"retention.ms": "5000"})
    client = KafkaAdminClient(bootstrap_servers=running.bootstrap)
    try:
        change = KafkaPythonResource(ConfigResourceType.TOPIC, "t", {"segment.ms": "77"})
        client.alter_configs([change], incremental=way)
    finally:
        client.close()
    configs = shown(admin, ResourceType.TOPIC, "t")
    # The client itself sends along what it found, where the request would otherwise forget it.
    assert (configs["segment.ms"].value, configs["retention.ms"].value) == ("77", "5000")


def test_offsets_for_times(running: BrokerProcess, admin: AdminClient) -> None:
    created(admin, "t")
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms - 5000, now_ms - 1000, now_ms - 3000]
    produced(running, "t", times)
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
    try:
        for wanted, offset in ((0, 0), (times[0] + 1, 1), (times[1], 1), (now_ms, -1)):
            (found,) = consumer.offsets_for_times([TopicPartition("t", 0, wanted)], timeout=WAIT_SECONDS)
            assert found.offset == offset
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=WAIT_SECONDS) == (0, 3)
    finally:
        consumer.close()
    latest = done(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.max_timestamp()}))
    assert (latest.offset, latest.timestamp) == (1, times[1])


def test_deleted_records_stay_deleted(running: BrokerProcess, admin: AdminClient) -> None:
    created(admin, "t")
    produced(running, "t", [time.time_ns() // 1_000_000] * 5)
    assert done(admin.delete_records([TopicPartition("t", 0, 3)])).low_watermark == 3
    running.kill()
    running.start()
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=WAIT_SECONDS) == (3, 5)
        consumer.assign([TopicPartition("t", 0, 2)])
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        assert message.error() is not None
        consumer.assign([TopicPartition("t", 0, 3)])
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        assert (message.error(), message.offset()) == (None, 3)
    finally:
        consumer.close()
