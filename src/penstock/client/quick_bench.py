"""A quick measurement of a running broker: how fast messages go in, come out, and cross.

For users who want to know what their machine does; through Python and librdkafka, so it measures the client too.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.connect import MESSAGE_BYTES_MAX, REQUEST_SECONDS, handle_settings
from penstock.client.errors import ClientError, explained, kafka_errors

Progress = Callable[[str, int, int], None]  # stage, done, of

_LATENCY_MESSAGES = 500
_LATENCY_WARM_UP = 50
_TAKEN_AT_ONCE = 5000
_QUEUE_FULL_WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Rate:
    messages: int
    bytes: int
    seconds: float

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds


class QuickBench:
    """One topic, one partition at a time; the topic is the caller's to make and delete."""

    def __init__(
        self, bootstrap: str, topic: str, *, size: int, acks: str, progress: Progress, debug: bool = False
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._payload = os.urandom(size)
        self._acks = acks
        self._progress = progress
        self._debug = debug
        # What is there already is not ours: reading starts where writing starts.
        admin = Admin(bootstrap, debug=debug)
        self._starts = admin.latest(topic, admin.partition_indexes(topic))

    def produce(self, messages: int) -> Rate:
        failures: list[KafkaError] = []
        done = 0

        def delivered(error: KafkaError | None, _: Message) -> None:
            nonlocal done
            done += 1
            if error is not None:
                failures.append(error)

        producer = self._producer()
        with kafka_errors(self._bootstrap, self._topic):
            # The connection is not part of the rate.
            producer.list_topics(self._topic, timeout=REQUEST_SECONDS)
        began = time.perf_counter()
        for number in range(messages):
            while True:
                try:
                    producer.produce(self._topic, self._payload, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(_QUEUE_FULL_WAIT_SECONDS)
                except KafkaException as error:
                    raise self._failed(error) from error
            if number % 1000 == 0:
                producer.poll(0)
                self._progress("produce", done, messages)
        while producer.flush(_QUEUE_FULL_WAIT_SECONDS):
            self._progress("produce", done, messages)
        seconds = time.perf_counter() - began
        if failures:
            raise self._failed(failures[0])
        return Rate(messages, messages * len(self._payload), seconds)

    def consume(self, messages: int) -> Rate:
        """Read back what `produce` wrote; with acks=0 what has arrived of it."""
        consumer = self._consumer(self._starts)
        try:
            got = size = 0
            began = came = time.perf_counter()
            while got < messages:
                before = got
                for message in consumer.consume(_TAKEN_AT_ONCE, _QUEUE_FULL_WAIT_SECONDS):
                    error = message.error()
                    if error is not None:
                        raise self._failed(error)
                    got += 1
                    size += len(message)
                self._progress("consume", got, messages)
                now = time.perf_counter()
                came = now if got > before else came
                if now - came > REQUEST_SECONDS:
                    self._judge(got, messages)
                    break
            return Rate(got, size, came - began)
        finally:
            consumer.close()

    def _judge(self, got: int, messages: int) -> None:
        """Nothing comes any more. Without acknowledgements nobody knows how much there is to come."""
        if not got:
            raise ClientError(f"nothing of {self._topic} came back: is it a view, or deleted meanwhile?")
        if self._acks != "0":
            raise ClientError(
                f"{got:,} of {messages:,} messages of {self._topic} came back, and then no more: see `penstock doctor`"
            )

    def latency(self, messages: int = _LATENCY_MESSAGES) -> list[float]:
        """Seconds from `produce` until the message is back, one at a time; sorted, without the first ones."""
        producer = self._producer(linger_ms=0)
        admin = Admin(self._bootstrap, debug=self._debug)
        partition = min(self._starts)
        end = admin.latest(self._topic, [partition])
        consumer = self._consumer(end)
        taken = []
        try:
            for number in range(_LATENCY_WARM_UP + messages):
                began = time.perf_counter()
                producer.produce(self._topic, self._payload, partition=partition)
                producer.poll(0)
                message = consumer.poll(REQUEST_SECONDS)
                if message is None:
                    raise ClientError(f"a message to {self._topic} did not come back: see `penstock doctor`")
                error = message.error()
                if error is not None:
                    raise self._failed(error)
                if number >= _LATENCY_WARM_UP:
                    taken.append(time.perf_counter() - began)
                self._progress("latency", number + 1, _LATENCY_WARM_UP + messages)
        finally:
            producer.flush(REQUEST_SECONDS)
            consumer.close()
        return sorted(taken)

    def _producer(self, linger_ms: int = 5) -> Producer:
        settings = {
            "acks": self._acks,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 500_000,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        }
        return Producer(handle_settings(self._bootstrap, debug=self._debug, **settings))

    def _consumer(self, starts: dict[int, int]) -> Consumer:
        settings = {
            "group.id": "penstock-bench",  # librdkafka wants one; it is never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.max.bytes": 50 * 1024 * 1024,
            "queued.max.messages.kbytes": 128 * 1024,
        }
        consumer = Consumer(handle_settings(self._bootstrap, debug=self._debug, **settings))
        consumer.assign([TopicPartition(self._topic, index, offset) for index, offset in starts.items()])
        return consumer

    def _failed(self, error: KafkaError | KafkaException) -> ClientError:
        return explained(error, bootstrap=self._bootstrap, subject=self._topic)
