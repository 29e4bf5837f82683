"""Starts members as processes and keeps what they say."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until

SCRIPT = Path(__file__).with_name("member.py")
_PARTITIONS = re.compile(r"\d+")


@dataclass
class Worker:
    """One member's process, and its story so far."""

    process: "subprocess.Popen[str]"
    assigned: set[int] = field(default_factory=set)
    assignments: int = 0
    revocations: list[set[int]] = field(default_factory=list)
    processed: list[tuple[int, int, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = threading.Thread(target=self.listen)
        self._listener.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            what, _, rest = line.strip().partition(" ")
            partitions = {int(one) for one in _PARTITIONS.findall(rest)}
            if what == "assigned":
                self.assigned |= partitions
                self.assignments += 1
            elif what == "revoked":
                self.assigned -= partitions
                self.revocations.append(partitions)
            elif what == "processed":
                partition, offset, value = rest.split(" ", 2)
                self.processed.append((int(partition), int(offset), value))

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(60)
        self._listener.join()


@dataclass
class Crew:
    client: str
    bootstrap: str
    group: str
    topic: str
    workers: list[Worker] = field(default_factory=list)
    sent: int = 0

    def hire(self, **more: str) -> Worker:
        wanted = {"bootstrap": self.bootstrap, "group": self.group, "topic": self.topic, **more}
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), self.client, json.dumps(wanted)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        worker = Worker(process)
        self.workers.append(worker)
        return worker

    def produce(self, count: int, partitions: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for _ in range(count):
            producer.produce(self.topic, b"%d" % self.sent, partition=self.sent % partitions)
            self.sent += 1
        assert producer.flush(60) == 0

    @property
    def values(self) -> set[int]:
        return {int(value) for worker in self.workers for _, _, value in worker.processed}

    def wait_for_all_processed(self) -> None:
        self._wait(lambda: len(self.values) == self.sent, "all is processed")

    def wait_for_owners(self, *workers: Worker, partitions: int) -> None:
        """Every partition has one of these as its owner, and each of them has some."""

        def owned() -> bool:
            parts = [one for worker in workers for one in worker.assigned]
            return sorted(parts) == list(range(partitions)) and all(worker.assigned for worker in workers)

        self._wait(owned, "all partitions are owned")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, what)
        except AssertionError as error:
            error.add_note("\n".join(str(worker.said[-8:]) for worker in self.workers))
            raise


@contextmanager
def crew(client: str, bootstrap: str, name: str, partitions: int) -> Iterator[Crew]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    one = Crew(client, bootstrap, f"{name}-group", name)
    try:
        yield one
    finally:
        for worker in one.workers:
            worker.kill()
            assert worker.process.stdout is not None
            worker.process.stdout.close()
