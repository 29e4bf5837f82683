"""The SDK beside bare confluent-kafka: same librdkafka, same settings, same broker, what Python adds.

    python -m benchmarks.sdk [--messages 200000] [--rounds 5] [--bytes 100]

Each round runs every contender once, so that a busy machine disturbs all alike; medians, and their ratios. The bare
producer does what anybody would have to do for the same result: an id header and a delivery callback per message, and
reports swept up every 256 messages (polling after each one is slower). The bare consumer is a `poll()` loop that
looks at each message's error and value.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Producer as RawProducer
from confluent_kafka import TopicPartition
from tools.peers import PenstockPeer

from benchmarks.topics import create_topic
from penstock import Consumer, Producer
from penstock.client.profiles import consumer_settings, producer_settings

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_MASK = 0xFF
MANY = 1000
_groups = itertools.count(1)


class Load(NamedTuple):
    bootstrap: str
    topic: str
    messages: int
    value: bytes


def bare_send(load: Load) -> None:
    settings = producer_settings("at-least-once", "throughput", None)
    producer = RawProducer({"bootstrap.servers": load.bootstrap, **settings})
    delivered = 0

    def report(error: object, _: object) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    for number in range(load.messages):
        headers = [("penstock-id", f"0123456789ab-{number:x}")]
        while True:
            try:
                producer.produce(load.topic, load.value, headers=headers, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
        if not number & SWEEP_MASK:
            producer.poll(0)
    producer.flush()
    if delivered != load.messages:
        raise AssertionError("messages lost")


def sdk_send(load: Load) -> None:
    with Producer(load.bootstrap, profile="throughput") as producer:
        for _ in range(load.messages):
            producer.send(load.topic, load.value)


def sdk_send_many(load: Load) -> None:
    with Producer(load.bootstrap, profile="throughput") as producer:
        for _ in range(load.messages // MANY):
            producer.send_many(load.topic, itertools.repeat(load.value, MANY))


def bare_poll(load: Load) -> None:
    settings = consumer_settings("throughput", None)
    group = f"bare-{next(_groups)}"
    consumer = RawConsumer({"bootstrap.servers": load.bootstrap, "group.id": group, **settings})
    consumer.assign([TopicPartition(load.topic, 0, 0)])
    read = 0
    while read < load.messages:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None and message.value() is not None:
            read += 1
    consumer.close()


def sdk_loop(load: Load) -> None:
    with Consumer(load.bootstrap, load.topic, profile="throughput") as consumer:
        for read, message in enumerate(consumer, 1):
            if message.value is None or read == load.messages:
                break


CONTENDERS: dict[str, Callable[[Load], None]] = {
    "bare produce": bare_send,
    "send": sdk_send,
    "send_many": sdk_send_many,
    "bare poll": bare_poll,
    "loop": sdk_loop,
}
# What is measured, beside what, and at least how much of it.
TARGETS = (("send", "bare produce", 0.5), ("send_many", "bare produce", 0.8), ("loop", "bare poll", 0.8))


def measure(load: Load, rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, run in CONTENDERS.items():
            started = time.perf_counter()
            run(load)
            rates[name].append(load.messages / (time.perf_counter() - started))
    return rates


def report(rates: dict[str, list[float]]) -> bool:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:14} {medians[name]:12,.0f} msg/s   {min(values):12,.0f} to {max(values):,.0f}")
    met = True
    for ours, theirs, least in TARGETS:
        ratio = medians[ours] / medians[theirs]
        met = met and ratio >= least
        print(f"{ours:10} {ratio:5.2f} x {theirs} (wanted: {least})")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=100)
    chosen = parser.parse_args()
    with PenstockPeer() as broker:
        create_topic(broker.bootstrap, "sdk", partitions=1, config={"penstock.ack.after": "written"})
        load = Load(broker.bootstrap, "sdk", chosen.messages, b"x" * chosen.bytes)
        return 0 if report(measure(load, chosen.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
