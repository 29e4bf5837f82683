"""A consumer that its group has given up: it commits nothing for what it lost, does not crash, and comes back.

Its session ends (the process is stopped by SIGSTOP, as by a long pause of a machine), or its body takes longer than
`max.poll.interval.ms`. Another member takes over meanwhile and finishes the work.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from tests.integration.commands import environment
from tests.integration.raw import wait_until

from penstock import Admin, Consumer, Producer
from penstock.client.profiles import Delivery
from penstock.testing import BrokerProcess, broker

TOTAL = 20
_names = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}) as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    name = f"lost-{next(_names)}"
    Admin(running.bootstrap).create(name, partitions=1)
    send(running, name, *map(str, range(TOTAL)))
    return name


def send(running: BrokerProcess, topic: str, *values: str) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send_many(topic, values).result()


def committed(running: BrokerProcess, topic: str) -> int | None:
    return Admin(running.bootstrap).committed(topic).get((topic, 0))


def take_over(running: BrokerProcess, topic: str, first: int) -> None:
    """Another member works off everything and leaves."""
    with Consumer(running.bootstrap, topic, group=topic) as other:
        seen = []
        while len(seen) < TOTAL - first:
            message = other.receive()
            assert message is not None
            seen.append(int(message.value))
    assert seen == list(range(first, TOTAL))
    assert committed(running, topic) == TOTAL


SLEEPER = """
import sys
from penstock import Consumer
config = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 200}
options = {"delivery": sys.argv[3], "commit_every": float(sys.argv[4]), "config": config}
with Consumer(sys.argv[1], sys.argv[2], group=sys.argv[2], **options) as consumer:
    for message in consumer:
        print("begin", message.value.decode(), flush=True)
        sys.stdin.readline()
        print("end", message.value.decode(), flush=True)
print("left", flush=True)
"""


class Sleeper:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on_until(self, wanted: str) -> None:
        """Others may come before: what it had already fetched when it was expelled."""
        while (said := self.heard()) != wanted:
            assert said, f"it ended before {wanted}"
            if said.startswith("begin"):
                self.go_on()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def sleeper(running: BrokerProcess, topic: str, delivery: str, commit_every: str) -> Iterator[Sleeper]:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER, running.bootstrap, topic, delivery, commit_every],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            yield Sleeper(process)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("delivery", "commit_every", "first"),
    [
        ("at-least-once", "0", 1),  # each is committed on its own
        ("at-least-once", "1000", 0),  # nothing is committed before the end
        ("at-most-once", "0", 2),  # committed before its body
    ],
)
def test_a_member_whose_session_ended_takes_nothing_back(
    running: BrokerProcess, topic: str, delivery: str, commit_every: str, first: int
) -> None:
    with sleeper(running, topic, delivery, commit_every) as member:
        assert member.heard() == "begin 0"
        member.go_on()
        assert [member.heard(), member.heard()] == ["end 0", "begin 1"]
        member.process.send_signal(signal.SIGSTOP)
        take_over(running, topic, first)
        member.process.send_signal(signal.SIGCONT)
        member.go_on()
        assert member.heard() == "end 1"
        # It finds itself expelled, joins again, and goes on where the other one was.
        send(running, topic, "last")
        member.go_on_until("begin last")
        assert committed(running, topic) == TOTAL + (delivery == "at-most-once")
        member.process.send_signal(signal.SIGTERM)
        member.go_on()
        assert [member.heard(), member.heard()] == ["end last", "left"]
        assert member.process.wait() == 0
    assert committed(running, topic) == TOTAL + 1


def test_what_it_did_before_it_was_expelled_is_not_committed_when_it_is_back(
    running: BrokerProcess, topic: str
) -> None:
    with sleeper(running, topic, "at-least-once", "1000") as member:
        assert member.heard() == "begin 0"
        member.process.send_signal(signal.SIGSTOP)
        take_over(running, topic, 0)
        member.process.send_signal(signal.SIGCONT)
        for _ in range(TOTAL):  # what it has already fetched may still be done before it knows
            member.go_on()
        assert member.heard() == "end 0"
        wait_until(lambda: _has_a_member_at_work(running, topic), "it is back")
        member.process.send_signal(signal.SIGTERM)
        member.go_on_until("left")
        assert member.process.wait() == 0
    assert committed(running, topic) == TOTAL


def _has_a_member_at_work(running: BrokerProcess, topic: str) -> bool:
    found = Admin(running.bootstrap).describe_group(topic)
    return found.state == "stable" and [member.partitions for member in found.members] == [((topic, 0),)]


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_a_body_that_takes_too_long_loses_its_partitions_and_nothing_else(
    running: BrokerProcess, topic: str, delivery: Delivery
) -> None:
    config = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 1000}
    with Consumer(running.bootstrap, topic, group=topic, delivery=delivery, config=config) as slow:
        message = slow.receive()
        assert message is not None
        if delivery == "at-most-once":
            # What was taken is committed; what was not handed out cannot be given back by who lost it.
            wait_until(lambda: not Admin(running.bootstrap).describe_group(topic).members, "it is expelled")
        else:
            take_over(running, topic, 0)
        before = committed(running, topic)
        assert before is not None
        send(running, topic, "last")
        seen = [message.value]
        while seen[-1] != b"last":  # it may hand out what it had taken before it hears of its loss
            found = slow.receive()
            assert found is not None
            seen.append(found.value)
            assert (committed(running, topic) or 0) >= before
        numbers = [int(value) for value in seen[:-1]]
        assert numbers == sorted(set(numbers)), "in order, and none twice"
        assert slow.assignment == [(topic, 0)]
    assert committed(running, topic) == TOTAL + 1
