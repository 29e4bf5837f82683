"""What the tests of frameworks have in common: where their programs are, and brokers to write to and read from."""

from __future__ import annotations

import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from tools.peers import maven

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
PYTHON = HERE / ".venv/bin/python"
JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN")
SEND_SECONDS, POLL_SECONDS = 60, 0.05


def java(*arguments: str) -> list[str]:
    """A program with Kafka Streams, Connect and MirrorMaker on its class path."""
    jars = maven.jars(POM, f"kafka-frameworks-{maven.pinned(POM, 'kafka.version')}")
    return [maven.java(), *JVM, "-cp", f"{jars}/*", *arguments]


@contextmanager
def running(command: Sequence[str], log: Path, *, may_end: bool = False) -> Iterator[None]:
    """The program runs meanwhile, and is asked to stop then; unless it may, it does not end by itself."""
    with log.open("a") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
            assert may_end or process.poll() is None, f"it ended by itself:\n{log.read_text()[-4000:]}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def produce(bootstrap: str, topic: str, messages: Iterable[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for key, value in messages:
        producer.produce(topic, value, key=key)
    assert producer.flush(SEND_SECONDS) == 0


class Reader:
    """Everything in a topic, from its beginning, as it comes; the topic need not be there yet."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0}
        self._consumer = Consumer(settings | {"enable.auto.commit": False})
        self._topic = topic
        self._is_assigned = False
        self.seen: list[tuple[str | None, str]] = []

    def look(self) -> list[tuple[str | None, str]]:
        """Keys and values so far, and of the next moment."""
        if not self._is_assigned:
            # All of them: asking for one that is not there would create it.
            found = self._consumer.list_topics(timeout=SEND_SECONDS).topics.get(self._topic)
            if found is None:
                return []
            self._consumer.assign([TopicPartition(self._topic, number, 0) for number in found.partitions])
            self._is_assigned = True
        for message in self._consumer.consume(1000, POLL_SECONDS):
            if message.error() is None:
                key, value = message.key(), message.value()
                self.seen.append((None if key is None else key.decode(), (value or b"").decode()))
        return self.seen

    def close(self) -> None:
        self._consumer.close()
