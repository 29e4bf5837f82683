"""One consumer of a group as a process of its own, so that it can be killed; tells what happens to it on stdout.

python member.py CLIENT '{"bootstrap": …, "group": …, "topic": …, "instance": …, "strategy": …}'

Lines: `assigned [0, 1] GENERATION` (which a client may not tell), `revoked [0]`, `processed PARTITION OFFSET VALUE`,
then `committed PARTITION OFFSET`, or `refused WHY`. SIGTERM ends it properly: it leaves the group. Members in other
languages (tests/clients) say the same lines.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

SESSION_MS, HEARTBEAT_MS = 2000, 300
# A static member comes back within its session, however busy the machine is that starts it.
STATIC_SESSION_MS = 60_000


def session_ms(wanted: dict[str, str]) -> int:
    return STATIC_SESSION_MS if "instance" in wanted else SESSION_MS


def tell(what: str, *values: object) -> None:
    # In one piece: SIGTERM may come at any time, and raises.
    os.write(sys.stdout.fileno(), (" ".join(map(str, (what, *values))) + "\n").encode())


def numbers(partitions: Iterable[Any]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


class Stopped(Exception):  # noqa: N818 - asked for
    pass


def stop_on_sigterm() -> None:
    def stop(*_: object) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)


def run_confluent(wanted: dict[str, str]) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": wanted["bootstrap"],
        "group.id": wanted["group"],
        "session.timeout.ms": session_ms(wanted),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": wanted.get("strategy", "range"),
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if "instance" in wanted:
        settings["group.instance.id"] = wanted["instance"]
    consumer = Consumer(settings)
    consumer.subscribe(
        [wanted["topic"]],
        on_assign=lambda _, parts: tell("assigned", numbers(parts)),
        on_revoke=lambda _, parts: tell("revoked", numbers(parts)),
        on_lost=lambda _, parts: tell("revoked", numbers(parts)),
    )
    try:
        while True:
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            tell("processed", message.partition(), message.offset(), message.value().decode())
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException as error:  # the next owner processes it again
                tell("refused", str(error).replace("\n", " "))
            else:
                tell("committed", message.partition(), message.offset())
    except Stopped:
        consumer.close()


def run_kafka_python(wanted: dict[str, str]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.errors import KafkaError

    # It keeps its position where it gets back what it had before a generation that it missed (3.0.12), although
    # another one may have gone on from there meanwhile: it has to be told to look.
    fresh: set[Any] = set()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", numbers(revoked))

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            fresh.update(assigned)
            tell("assigned", numbers(assigned), consumer._coordinator._generation.generation_id)

    more: dict[str, Any] = {"group_instance_id": wanted["instance"]} if "instance" in wanted else {}
    if wanted.get("strategy") == "cooperative-sticky":
        more["partition_assignment_strategy"] = [CooperativeStickyAssignor]
    consumer = KafkaConsumer(
        bootstrap_servers=wanted["bootstrap"],
        group_id=wanted["group"],
        session_timeout_ms=session_ms(wanted),
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
        **more,
    )
    consumer.subscribe([wanted["topic"]], listener=Listener())
    try:
        while True:
            polled = consumer.poll(timeout_ms=100)
            for partition in fresh & consumer.assignment():
                polled.pop(partition, None)  # comes again from there
                consumer.seek(partition, consumer.committed(partition) or 0)
            fresh.clear()
            for messages in polled.values():
                (message,) = messages
                tell("processed", message.partition, message.offset, message.value.decode())
                try:
                    consumer.commit()
                except KafkaError as error:
                    tell("refused", error)
                else:
                    tell("committed", message.partition, message.offset)
    except Stopped:
        consumer.close()


async def run_aiokafka(wanted: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", numbers(revoked))

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell("assigned", numbers(assigned), consumer._coordinator.generation)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=wanted["bootstrap"],
        group_id=wanted["group"],
        session_timeout_ms=session_ms(wanted),
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_instance_id=wanted.get("instance"),
    )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer.subscribe([wanted["topic"]], listener=Listener())
    await consumer.start()
    while not stopped.is_set():
        for messages in (await consumer.getmany(timeout_ms=100, max_records=1)).values():
            (message,) = messages
            tell("processed", message.partition, message.offset, message.value.decode())
            try:
                await consumer.commit()
            except KafkaError as error:
                tell("refused", error)
            else:
                tell("committed", message.partition, message.offset)
    await consumer.stop()


def main() -> None:
    client, wanted = sys.argv[1], json.loads(sys.argv[2])
    if client == "aiokafka":
        asyncio.run(run_aiokafka(wanted))
        return
    stop_on_sigterm()
    {"confluent": run_confluent, "kafka-python": run_kafka_python}[client](wanted)


if __name__ == "__main__":
    main()
