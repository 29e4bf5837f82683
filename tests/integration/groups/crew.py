"""Starts members as processes and keeps what they say."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until

SCRIPT = Path(__file__).with_name("member.py")
_NUMBERS = re.compile(r"\d+")
_LOAD_BATCH, _LOAD_PAUSE_S = 10, 0.05


@dataclass
class Worker:
    """One member's process, and its story so far."""

    process: "subprocess.Popen[str]"
    instance: str | None = None
    assigned: set[int] = field(default_factory=set)
    assignments: int = 0
    revocations: list[set[int]] = field(default_factory=list)
    processed: list[tuple[int, int, str]] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    # What it held in each generation, where its client tells which that is.
    held: dict[int, set[int]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = threading.Thread(target=self.listen)
        self._listener.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            what, _, rest = line.strip().partition(" ")
            if what in ("assigned", "revoked"):
                listed, _, generation = rest.partition("]")
                self._owns(what, {int(number) for number in _NUMBERS.findall(listed)}, generation.strip())
            elif what == "processed":
                partition, offset, value = rest.split(" ", 2)
                self.processed.append((int(partition), int(offset), value))
            elif what == "committed":
                partition, offset = rest.split(" ")
                self.committed.append((int(partition), int(offset)))

    def _owns(self, what: str, partitions: set[int], generation: str) -> None:
        if what == "revoked":
            self.assigned -= partitions
            self.revocations.append(partitions)
            return
        self.assigned |= partitions
        self.assignments += 1
        if generation:
            self.held[int(generation)] = set(self.assigned)

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
    program: tuple[str, ...]
    workers: list[Worker] = field(default_factory=list)
    sent: int = 0

    def hire(self, **more: str) -> Worker:
        wanted = {"bootstrap": self.bootstrap, "group": self.group, "topic": self.topic, **more}
        process = subprocess.Popen(
            [*self.program, json.dumps(wanted)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        worker = Worker(process, more.get("instance"))
        self.workers.append(worker)
        return worker

    def produce(self, count: int, partitions: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for _ in range(count):
            producer.produce(self.topic, b"%d" % self.sent, partition=self.sent % partitions)
            self.sent += 1
        assert producer.flush(60) == 0

    @contextmanager
    def load(self, partitions: int) -> Iterator[None]:
        """Messages keep coming inside the block."""
        stopped = threading.Event()

        def send() -> None:
            while not stopped.wait(_LOAD_PAUSE_S):
                self.produce(_LOAD_BATCH, partitions)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    @property
    def values(self) -> set[int]:
        return {int(value) for worker in self.workers for _, _, value in worker.processed}

    def wait_for_all_processed(self) -> None:
        self._wait(lambda: len(self.values) == self.sent, "all is processed")

    def wait_for_owners(self, *workers: Worker, partitions: int) -> None:
        """Every partition has one of these as its owner, and each of them has some."""

        def owned() -> bool:
            parts = [partition for worker in workers for partition in worker.assigned]
            return sorted(parts) == list(range(partitions)) and all(worker.assigned for worker in workers)

        self._wait(owned, "all partitions are owned")

    def check_work(self) -> None:
        """Nobody processed again what was committed, and in no generation two of them held one partition."""
        committed = Counter(place for worker in self.workers for place in worker.committed)
        assert [place for place, times in committed.items() if times > 1] == []
        owners: dict[tuple[int, int], set[object]] = {}
        for worker in self.workers:
            who = worker.instance or id(worker)  # a static member that came back is the one it was
            for generation, partitions in worker.held.items():
                for partition in partitions:
                    owners.setdefault((generation, partition), set()).add(who)
        shared = [place for place, held_by in owners.items() if len(held_by) > 1]
        assert not shared, (shared, [worker.held for worker in self.workers])

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, what)
        except AssertionError as error:
            error.add_note("\n".join(str(worker.said[-8:]) for worker in self.workers))
            raise


@contextmanager
def crew(
    client: str, bootstrap: str, name: str, partitions: int, program: tuple[str, ...] = ()
) -> Iterator[Crew]:
    """Members are `program`; without one they are the Python client's."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    team = Crew(client, bootstrap, f"{name}-group", name, program or (sys.executable, str(SCRIPT), client))
    try:
        yield team
    finally:
        for worker in team.workers:
            worker.kill()
            assert worker.process.stdout is not None
            worker.process.stdout.close()
