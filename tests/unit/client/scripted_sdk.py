"""The SDK's own producer and admin client over the broker of scripted.py, as far as consumers use them."""

from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError

from penstock.client.errors import ClientError, kafka_errors

if TYPE_CHECKING:
    from tests.unit.client.scripted import Broker

Header = tuple[str, Any]
DEFAULTS = {"retention.ms": "604800000", "max.message.bytes": "1048588"}


class Delivery:
    def __init__(self, error: ClientError | None, offset: int | None = None) -> None:
        self._error = error
        self.offset = offset

    def done(self) -> bool:
        return True

    def exception(self) -> ClientError | None:
        return self._error

    def result(self) -> Self:
        if self._error is not None:
            raise self._error
        return self


class Producer:
    """The SDK's own producer, as far as retries use it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def _step(self, call: str, done: bool) -> None:
        """What librdkafka raises is explained, as it is by the real one."""
        with kafka_errors("scripted", call):
            self._broker.fault(call, done)

    def partitions(self, topic: str) -> int:
        self._step("partitions", False)
        return len(self._broker.partitions(topic))

    def pass_on(
        self, topic: str, value: bytes, key: bytes | None, partition: int, headers: list[Header]
    ) -> Delivery:
        self._step("produce", False)
        if self._broker.refuse(topic):
            return Delivery(ClientError(f"{topic} does not take it"))
        offset = self._broker.append((topic, max(0, partition)), value, key, headers)
        self._step("produce", True)
        if topic in self._broker.forget_answer:
            self._broker.forget_answer.remove(topic)
            return Delivery(ClientError(f"{topic} did not answer"))
        return Delivery(None, offset)

    def close(self) -> None:
        pass


class Admin:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def partition_indexes(self, topic: str) -> list[int]:
        return self._broker.partitions(topic)

    def create(self, topic: str, *, partitions: int, configs: dict[str, str]) -> None:
        if (topic, 0) in self._broker.logs:
            raise ClientError("exists", KafkaError.TOPIC_ALREADY_EXISTS)
        self._broker.make(topic, partitions)
        self._broker.configs[topic] = configs

    def settings_of_topic(self, topic: str) -> dict[str, str]:
        return DEFAULTS | self._broker.configs.get(topic, {})

    def retire_partitions(self, topic: str, staying: int) -> None:
        """At once: there is nobody who writes there."""
        if not self._broker.retires:
            raise ClientError("Apache Kafka cannot")
        self._broker.configs.setdefault(topic, {})["penstock.retire.to"] = str(staying)

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        self._broker.starts |= {(topic, index): at for index, at in before.items()}

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._broker.make(topic, partitions)
