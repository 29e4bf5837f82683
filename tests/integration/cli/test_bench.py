"""`penstock bench`: measures, cleans up after itself, and leaves a named topic alone."""

from collections.abc import Iterator

import pytest
from tests.integration.commands import penstock

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


def topics(running: BrokerProcess) -> list[str]:
    return [topic["name"] for topic in penstock("topic", "list", "--json", bootstrap=running.bootstrap).json]


def test_measures_and_cleans_up(running: BrokerProcess) -> None:
    before = topics(running)
    done = penstock("bench", "--messages", "2000", "--size", "100", bootstrap=running.bootstrap)
    assert done.code == 0, done.err
    assert "produce, acks=all" in done.out
    assert "p99" in done.out
    assert topics(running) == before


def test_named_topic_is_kept_with_what_was_in_it(running: BrokerProcess) -> None:
    penstock("produce", "mine", bootstrap=running.bootstrap, stdin="kept\n")
    options = ("--messages", "1000", "--size", "10", "--acks", "1", "--topic", "mine", "--json")
    done = penstock("bench", *options, bootstrap=running.bootstrap)
    assert done.code == 0, done.err
    assert (done.json["produce"]["messages"], done.json["consume"]["messages"]) == (1000, 1000)
    assert set(done.json["latency_ms"]) == {"p50", "p95", "p99"}
    first = penstock("consume", "mine", "--from-beginning", "--max", "1", bootstrap=running.bootstrap)
    assert first.out == "kept\n"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--topic", "absent"], 1, "there is no topic absent"),
        (["--size", "2000000", "--messages", "3"], 1, "too large"),
        (["--acks", "some"], 2, "--acks"),
        (["--messages", "0"], 2, "--messages"),
        (["--bootstrap", "127.0.0.1:1"], 1, "nothing answers"),
    ],
)
def test_refusals_say_what_to_do(running: BrokerProcess, options: list[str], code: int, words: str) -> None:
    done = penstock("bench", *options, bootstrap=running.bootstrap)
    assert done.code == code
    assert words in done.said()
    assert not [name for name in topics(running) if name.startswith("penstock-bench")]
