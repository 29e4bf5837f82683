"""Sending what comes line by line, and knowing at the end what became of it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.client.connect import MESSAGE_BYTES_MAX, REQUEST_SECONDS, handle_settings, reach
from penstock.client.errors import ClientError, explained, kafka_errors

Headers = Sequence[tuple[str, bytes]]

# A broker that makes topics on first use needs a moment before it knows the new one.
_TOPIC_APPEARS_SECONDS = 3.0
_QUEUE_FULL_WAIT_SECONDS = 0.1
_NOT_YET = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE}


class ConsoleProducer:
    """Keeps order and sends nothing twice when it is acknowledged by all; keys go where every client puts them."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        acks: str = "all",
        compression: str = "none",
        on_failure: Callable[[ClientError], None],
        debug: bool = False,
    ) -> None:
        reach(bootstrap)
        self._bootstrap = bootstrap
        self._topic = topic
        self._on_failure = on_failure
        self.acknowledged = 0
        self.failed = 0
        settings: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "partitioner": "murmur2_random",
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "delivery.timeout.ms": int(REQUEST_SECONDS * 1000),
        }
        self._producer = Producer(handle_settings(bootstrap, debug=debug, **settings))
        self._await_topic()

    def _await_topic(self) -> None:
        """Ask for the topic, which may make it; a wrong name fails here and not message by message."""
        deadline = time.monotonic() + _TOPIC_APPEARS_SECONDS
        while True:
            with kafka_errors(self._bootstrap, self._topic):
                found = self._producer.list_topics(self._topic, timeout=REQUEST_SECONDS).topics[self._topic]
            if found.error is None:
                return
            if found.error.code() not in _NOT_YET or time.monotonic() > deadline:
                raise explained(found.error, bootstrap=self._bootstrap, subject=self._topic)
            self._producer.poll(0.05)

    def send(self, value: bytes, key: bytes | None = None, headers: Headers = ()) -> None:
        """Hand over one message; waits while too many are under way."""
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, headers=list(headers), on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(_QUEUE_FULL_WAIT_SECONDS)
            except KafkaException as error:
                self._refused(error)
                return
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Wait until every message is acknowledged or has failed."""
        while self._producer.flush(_QUEUE_FULL_WAIT_SECONDS):
            pass

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._refused(error)

    def _refused(self, error: KafkaError | KafkaException) -> None:
        self.failed += 1
        self._on_failure(explained(error, bootstrap=self._bootstrap, subject=self._topic))
