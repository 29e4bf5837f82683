"""The SDK beside bare confluent-kafka: same librdkafka, same settings, same broker, what Python adds.

The bare producer does what anybody would have to do for the same result: an id header and a delivery callback per
message, and reports swept up every 256 messages (polling after each one is slower). The bare consumer is a `poll()`
loop that looks at each message's error and value; both consumers are timed from their first message on, for what comes
before it is the broker's. All contenders write into, and read, topics of one partition.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Producer as RawProducer
from confluent_kafka import TopicPartition

from benchmarks import machine
from benchmarks.contenders import Bench, Contender
from benchmarks.measurements import Measurement
from benchmarks.rows import Row
from penstock import Consumer, Producer
from penstock.client.profiles import consumer_settings, producer_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.load import Metrics

SWEEP_MASK = 0xFF
MANY = 1000
MESSAGES = 500_000
VALUE = b"x" * 100
WRITTEN = {"penstock.ack.after": "written"}
BARE = Contender("bare", "penstock", WRITTEN)
SDK = Contender("sdk", "penstock", WRITTEN)
SDK_MANY = Contender("sdk-many", "penstock", WRITTEN)
_groups = itertools.count(1)


class Target(NamedTuple):
    bootstrap: str
    topic: str
    messages: int


def bare_send(target: Target) -> None:
    settings = producer_settings("at-least-once", "throughput", None)
    producer = RawProducer({"bootstrap.servers": target.bootstrap, **settings})
    delivered = 0

    def report(error: object, _: object) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    for number in range(target.messages):
        headers = [("penstock-id", f"0123456789ab-{number:x}")]
        while True:
            try:
                producer.produce(target.topic, VALUE, headers=headers, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
        if not number & SWEEP_MASK:
            producer.poll(0)
    producer.flush()
    if delivered != target.messages:
        raise AssertionError("messages lost")


def sdk_send(target: Target) -> None:
    with Producer(target.bootstrap, profile="throughput") as producer:
        for _ in range(target.messages):
            producer.send(target.topic, VALUE)


def sdk_send_many(target: Target) -> None:
    with Producer(target.bootstrap, profile="throughput") as producer:
        for _ in range(target.messages // MANY):
            producer.send_many(target.topic, itertools.repeat(VALUE, MANY))


def bare_poll(target: Target) -> float:
    settings = consumer_settings("throughput", None)
    group = f"bare-{next(_groups)}"
    consumer = RawConsumer({"bootstrap.servers": target.bootstrap, "group.id": group, **settings})
    consumer.assign([TopicPartition(target.topic, 0, 0)])
    read, began = 0, 0.0
    while read < target.messages:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None and message.value() is not None:
            read += 1
            if read == 1:
                began = time.perf_counter()
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def sdk_loop(target: Target) -> float:
    began = ended = 0.0
    with Consumer(target.bootstrap, target.topic, profile="throughput") as consumer:
        for read, message in enumerate(consumer, 1):
            if read == 1:
                began = time.perf_counter()
            if message.value is None or read == target.messages:
                ended = time.perf_counter()
                break
    return ended - began


SENDERS: dict[str, Callable[[Target], None]] = {"bare": bare_send, "sdk": sdk_send, "sdk-many": sdk_send_many}
READERS: dict[str, Callable[[Target], float]] = {"bare": bare_poll, "sdk": sdk_loop}


def send(bench: Bench, contender: Contender) -> Metrics:
    topic = bench.new_topic(contender)
    try:
        machine.settle()
        target = Target(bench.broker(contender).bootstrap, topic, int(MESSAGES * bench.scale) // MANY * MANY)
        began = time.perf_counter()
        SENDERS[contender.key](target)
        return {"messages_per_s": target.messages / (time.perf_counter() - began)}
    finally:
        bench.delete_topic(contender, topic)


def read(bench: Bench, contender: Contender, filled: dict[str, str]) -> Metrics:
    """A topic of each contender's own, written once."""
    bootstrap, messages = bench.broker(contender).bootstrap, int(MESSAGES * bench.scale) // MANY * MANY
    if contender.key not in filled:
        filled[contender.key] = bench.new_topic(contender)
        sdk_send_many(Target(bootstrap, filled[contender.key], messages))
    machine.settle()
    seconds = READERS[contender.key](Target(bootstrap, filled[contender.key], messages))
    return {"messages_per_s": messages / seconds}


_filled: dict[str, str] = {}
MEASUREMENTS = (
    Measurement("sdk-send", "sdk", send, (BARE, SDK, SDK_MANY)),
    Measurement("sdk-consume", "sdk", partial(read, filled=_filled), (BARE, SDK), topics=_filled),
)
SDK_ROWS = (
    Row("`send`, 100 B", "sdk-send", "messages_per_s", "msg/s", "sdk", "bare", 0.5),
    Row("`send_many`, 100 B", "sdk-send", "messages_per_s", "msg/s", "sdk-many", "bare", 0.8),
    Row("consume loop, 100 B", "sdk-consume", "messages_per_s", "msg/s", "sdk", "bare", 0.8),
)
