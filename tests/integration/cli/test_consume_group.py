"""`penstock consume --group`: a member like any other, which commits what it has printed."""

import fcntl
import json
import resource
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import IO

import pytest
from confluent_kafka import Consumer as PlainConsumer
from tests.integration.commands import COMMAND, environment, penstock
from tests.integration.raw import wait_until

from penstock import Admin, Consumer, Producer
from penstock.testing import BrokerProcess, broker

_names = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    name = f"lines-{next(_names)}"
    Admin(running.bootstrap).create(name, partitions=2)
    return name


def send(running: BrokerProcess, topic: str, values: list[str]) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send_many(topic, values, keys=values).result()


def consume(running: BrokerProcess, topic: str, *options: str) -> list[str]:
    done = penstock("consume", topic, "--group", topic, *options, bootstrap=running.bootstrap)
    assert done.code == 0, done.err
    return done.out.splitlines()


def following(running: BrokerProcess, topic: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, "consume", topic, "--group", topic, "--from-beginning"],
        env=environment(running.bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_group_goes_on_where_it_left(running: BrokerProcess, topic: str) -> None:
    wanted = [str(number) for number in range(30)]
    send(running, topic, wanted)
    first = consume(running, topic, "--from-beginning", "--max", "7")
    assert len(first) == 7
    second = consume(running, topic, "--from-beginning", "--no-follow")
    assert sorted(first + second, key=int) == wanted
    assert consume(running, topic, "--from-beginning", "--no-follow") == []
    assert Admin(running.bootstrap).describe_group(topic).lag == 0
    send(running, topic, ["more"])
    (more,) = map(json.loads, consume(running, topic, "--no-follow", "--json"))
    assert (more["value"], more["key"], more["topic"]) == ("more", "more", topic)


def test_what_it_began_at_the_first_and_did_not_get_to_is_not_skipped(running: BrokerProcess) -> None:
    """Of partitions that it never got to it has committed nothing; told no start, they would be read from the end."""
    topic = f"lines-{next(_names)}"
    Admin(running.bootstrap).create(topic, partitions=12)
    wanted = [str(number) for number in range(30)]
    send(running, topic, wanted)
    first = consume(running, topic, "--from-beginning", "--max", "1")
    assert sorted(first + consume(running, topic, "--no-follow"), key=int) == wanted


def test_where_nothing_is_committed_it_begins_at_the_end_or_where_it_is_told(
    running: BrokerProcess, topic: str
) -> None:
    send(running, topic, ["old"])
    assert consume(running, topic, "--no-follow") == []
    admin = Admin(running.bootstrap)
    ends = admin.latest(topic, admin.partition_indexes(topic))
    assert admin.committed(topic) == {(topic, index): end for index, end in ends.items()}  # it began there
    admin.delete_group(topic)
    assert consume(running, topic, "--no-follow", "--since", "1h") == ["old"]


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_what_was_printed_and_leaves(
    running: BrokerProcess, topic: str, ended_by: signal.Signals
) -> None:
    send(running, topic, ["a", "b", "c"])
    admin = Admin(running.bootstrap)
    with following(running, topic) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(3)) == ["a\n", "b\n", "c\n"]
        pauses = _pauses(process.pid)
        wait_until(lambda: _pauses(process.pid) > pauses + 2, "it asks for more, again and again")
        process.send_signal(ended_by)
        left = process.communicate()
        assert (process.returncode, *left) == (0, "", "")
    found = admin.describe_group(topic)
    assert (found.members, sum(offset.committed or 0 for offset in found.offsets)) == ((), 3)


def test_a_newcomer_waits_for_its_share_beside_cooperative_members(
    running: BrokerProcess, topic: str
) -> None:
    values = [str(number) for number in range(20)]
    send(running, topic, values)
    stopped = threading.Event()

    def hold() -> None:
        with Consumer(running.bootstrap, topic, group=topic, start="earliest", stop_on=()) as member:
            while not stopped.is_set():
                member.receive(0.1)
                member.pause()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            groups = partial(Admin(running.bootstrap).describe_groups, [topic])
            wait_until(
                lambda: [len(member.partitions) for group in groups() for member in group.members] == [2],
                "it has all",
            )
            assert consume(running, topic, "--from-beginning", "--no-follow"), "half of it is its own"
        finally:
            stopped.set()
        holding.result()


def test_what_nobody_reads_from_the_pipe_is_not_committed(running: BrokerProcess, topic: str) -> None:
    line = "x" * 1000
    send(running, topic, [f"{number:04}{line}" for number in range(900)])  # more than a pipe takes
    with following(running, topic) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait()
    assert sum(Admin(running.bootstrap).committed(topic).values()) < 900


def test_what_could_not_be_printed_is_not_committed(running: BrokerProcess, topic: str) -> None:
    """Its reader has stalled: the pipe is full, and the rest of a batch is in hand when it is interrupted."""
    line = "x" * 1000
    send(running, topic, [f"{number:04}{line}" for number in range(1000)])
    admin = Admin(running.bootstrap)
    with following(running, topic) as process:
        assert process.stdout is not None
        room = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
        # It writes as much as fits; less than a page stays free at most.
        wait_until(lambda: _bytes_in(process.stdout) > room - resource.getpagesize(), "the pipe is full")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not admin.describe_group(topic).members, "it has left")
        assert sum(admin.committed(topic).values()) <= room // len(line)
        process.stdout.read()
    # Nothing is lost: the next one prints what was not committed.
    left = 1000 - sum(admin.committed(topic).values())
    assert len(consume(running, topic, "--from-beginning", "--no-follow")) == left


def _pauses(pid: int) -> int:
    """How often its main thread has gone to sleep: nothing but waiting for messages makes it."""
    with open(f"/proc/{pid}/task/{pid}/status") as status:
        (line,) = (line for line in status if line.startswith("voluntary_ctxt_switches"))
    return int(line.split()[1])


def _bytes_in(pipe: "IO[str] | None") -> int:
    assert pipe is not None
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def test_it_joins_members_that_assign_in_another_way(running: BrokerProcess, topic: str) -> None:
    """Members with other strategies than everybody's are refused by the group: it does as they do."""
    other = PlainConsumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
        }
    )
    admin = Admin(running.bootstrap)

    def shared(members: int) -> bool:
        other.poll(0.05)
        found = admin.describe_groups([topic])
        return [len(group.members) for group in found if group.state == "stable"] == [members]

    try:
        other.subscribe([topic])
        wait_until(lambda: shared(1), "the first is there")
        with following(running, topic) as process:
            wait_until(lambda: shared(2), "both are in the group")
            parts = [len(member.partitions) for member in admin.describe_group(topic).members]
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: shared(1), "it has left")
            assert process.wait() == 0
        assert parts == [1, 1]
    finally:
        other.close()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--group", "g", "--offset", "3"], 2, "penstock group reset g --to-offset 3"),
        (["--group", "g", "--partition", "0"], 2, "--partition"),
        (["--group", "g", "--from-archive", "/nowhere"], 2, "--from-archive"),
        (["--group", ""], 2, "--group"),
        (["--group", "g", "--since", "soon"], 2, "is not a time"),
        (["--group", "g", "--bootstrap", "127.0.0.1:1"], 1, "penstock up"),
    ],
)
def test_refusals_say_what_to_do(
    running: BrokerProcess, topic: str, options: list[str], code: int, words: str
) -> None:
    done = penstock("consume", topic, *options, bootstrap=running.bootstrap)
    assert (done.code, words in done.said()) == (code, True), done.err


def test_a_topic_that_is_not_there_is_said(running: BrokerProcess) -> None:
    done = penstock("consume", "absent", "--group", "g", bootstrap=running.bootstrap)
    assert (done.code, "there is no topic absent" in done.said()) == (1, True)
