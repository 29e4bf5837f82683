"""Frameworks that read a topic, do something and write another: they go on where they stopped (`make clients`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.clients.frameworks.programs import HERE, PYTHON, Reader, java, produce, running
from tests.integration.raw import wait_until

from penstock.services.refusals import TRANSACTIONS
from penstock.testing import BrokerProcess, broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients
KEYS, ROUND = ("a", "b", "c"), 12
APPS = HERE / "apps"


@dataclass(frozen=True)
class Framework:
    name: str
    counts: bool  # by key, in a state of its own; or repeats what it reads, in capital letters
    # What is in its directory is lost between its two runs: the state is in changelogs.
    forgets: bool = True
    loses: int = 0  # so many results when it starts again, beside Apache Kafka as here

    def command(self, *arguments: str) -> list[str]:
        if self.name == "kafka-streams":
            return java(str(APPS / "StreamsApp.java"), *arguments)
        return [str(PYTHON), str(APPS / f"{self.name}_app.py"), *arguments]


FRAMEWORKS = [
    pytest.param(framework, id=framework.name, marks=pytest.mark.ecosystem(framework.name))
    for framework in (
        Framework("kafka-streams", counts=True),
        Framework("quix", counts=True),
        Framework("faust", counts=True, loses=1),
        Framework("faststream", counts=False),
        Framework("bytewax", counts=False, forgets=False),
    )
]


@pytest.fixture(scope="module")
def queue() -> Iterator[BrokerProcess]:
    # As many as faust's table has: nobody creates topics here but by asking for them.
    with broker({"num.partitions": "2"}) as process:
        yield process


def sent(word: str) -> list[tuple[str, str]]:
    return [(KEYS[number % len(KEYS)], f"{word} {number}") for number in range(ROUND)]


def expected(framework: Framework, *rounds: list[tuple[str, str]]) -> set[tuple[str, str] | str]:
    messages = [message for round_ in rounds for message in round_]
    if not framework.counts:
        return {value.upper() for _, value in messages}
    totals = {key: sum(message_key == key for message_key, _ in messages) for key in KEYS}
    return {(key, str(number)) for key, total in totals.items() for number in range(1, total + 1)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_goes_on_where_it_stopped(
    framework: Framework, queue: BrokerProcess, tmp_path: Path
) -> None:
    name = framework.name
    source, target = f"{name}-in", f"{name}-out"
    reader = Reader(queue.bootstrap, target)
    rounds: list[list[tuple[str, str]]] = []
    for word in ("word", "more"):
        directory = tmp_path / (word if framework.forgets else "kept")
        directory.mkdir(exist_ok=True)
        produce(queue.bootstrap, source, sent(word))
        rounds.append(sent(word))
        wanted = expected(framework, *rounds)

        def done(wanted: set[tuple[str, str] | str] = wanted) -> bool:
            seen = reader.look()
            missing = wanted - set(seen if framework.counts else (value for _, value in seen))
            return len(missing) <= framework.loses

        command = framework.command(queue.bootstrap, name, source, target, str(directory))
        with running(command, tmp_path / "log"):
            wait_until(done, f"{name} has written {len(wanted)} results")
    reader.close()
    # At least once, and nothing of its own making: no count begins anew.
    assert {message if framework.counts else message[1] for message in reader.seen} <= wanted


EXACTLY_ONCE = [
    pytest.param(name, guarantee, words, id=name, marks=pytest.mark.ecosystem(name))
    for name, guarantee, words in (
        ("kafka-streams", "exactly_once_v2", TRANSACTIONS),
        # It ends with whatever comes of closing its consumer then, and does not show why.
        ("quix", "exactly-once", "Traceback"),
        ("faust", "exactly_once", "TransactionalIdAuthorizationFailed"),
    )
]


@pytest.mark.parametrize(("name", "guarantee", "words"), EXACTLY_ONCE)
def test_exactly_once_is_refused_in_words(
    name: str, guarantee: str, words: str, queue: BrokerProcess, tmp_path: Path
) -> None:
    once, log = f"{name}-once", tmp_path / "log"
    produce(queue.bootstrap, f"{once}-in", sent("word"))
    arguments = (queue.bootstrap, once, f"{once}-in", f"{once}-out", str(tmp_path), guarantee)
    with running(Framework(name, counts=True).command(*arguments), log, may_end=True):
        wait_until(lambda: words in log.read_text(), f"{name} says that it is refused")
