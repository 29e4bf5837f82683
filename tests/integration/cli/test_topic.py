"""`penstock topic …` against a running broker."""

from collections.abc import Iterator

import pytest
from tests.integration.commands import Done, penstock

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"num.partitions": "2"}) as process:
        yield process


class Topic:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str) -> Done:
        return penstock("topic", *arguments, bootstrap=self._bootstrap)


@pytest.fixture
def topic(running: BrokerProcess) -> Topic:
    return Topic(running.bootstrap)


def test_a_topic_from_creation_to_deletion(topic: Topic) -> None:
    made = topic("create", "life", "--partitions", "3", "--config", "retention.ms=60000")
    assert made.code == 0, made.err
    assert "3 partitions" in made.out

    assert {"name": "life", "partitions": 3, "replicas": 1} in topic("list", "--json").json
    described = topic("describe", "life", "--json").json
    assert described["configs"] == {"retention.ms": "60000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert {(p["earliest"], p["latest"]) for p in described["partitions"]} == {(0, 0)}

    grown = topic(
        "alter", "life", "--partitions", "4", "--config", "segment.ms=5000", "--delete-config", "retention.ms"
    )
    assert grown.code == 0, grown.err
    described = topic("describe", "life", "--json").json
    assert len(described["partitions"]) == 4
    assert described["configs"] == {"segment.ms": "5000"}

    assert topic("delete", "life").code == 0
    assert "life" not in {entry["name"] for entry in topic("list", "--json").json}


def test_a_change_that_fails_half_way_says_what_was_done(topic: Topic) -> None:
    topic("create", "half", "--partitions", "2")
    failed = topic("alter", "half", "--partitions", "3", "--config", "segment.ms=5000", "--replicas", "9")
    assert failed.code == 1
    assert failed.said().endswith("before that, the settings are changed and there are 3 partitions")
    described = topic("describe", "half", "--json").json
    assert (described["configs"], len(described["partitions"])) == ({"segment.ms": "5000"}, 3)
    failed = topic("alter", "half", "--replicas", "9")
    assert "before that" not in failed.said()


def test_fewer_partitions_have_to_be_meant(topic: Topic) -> None:
    """A 3 that should have been 30."""
    topic("create", "kept", "--partitions", "4")
    refused = topic("alter", "kept", "--partitions", "3", "--config", "segment.ms=5000")
    assert refused.code != 0
    assert "this would retire 1 partition; say so with --retire" in refused.err
    refused = topic("alter", "kept", "--config", "penstock.retire.to=1")
    assert "this would retire 3 partitions; say so with --retire" in refused.err
    described = topic("describe", "kept", "--json").json
    assert described["configs"] == {}
    assert not any(p["retired"] for p in described["partitions"])
    assert topic("alter", "kept", "--partitions", "3", "--retire").code == 0
    described = topic("describe", "kept", "--json").json
    assert [p["retired"] for p in described["partitions"]] == [False, False, False, True]


def test_what_is_not_said_is_left_to_the_broker(topic: Topic) -> None:
    made = topic("create", "plain", "--json").json
    assert (len(made["partitions"]), made["configs"]) == (2, {})


def test_tables_show_the_same(topic: Topic) -> None:
    topic("create", "shown", "--partitions", "3", "--config", "retention.ms=60000")
    assert any(line.split() == ["shown", "3", "1"] for line in topic("list").out.splitlines())
    text = topic("describe", "shown").out
    assert "retention.ms = 60000" in text
    assert any(line.split() == ["2", "1", "1", "1", "0", "0"] for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["describe", "absent"], 1, "make it with `penstock topic create absent`"),
        (["delete", "absent"], 1, "there is no topic absent"),
        (["alter", "absent", "--config", "retention.ms=1"], 1, "there is no topic absent"),
        (["create", "bad/name"], 1, "bad/name"),
        (["create", "x", "--config", "retention.ms=soon"], 1, "retention.ms"),
        (["create", "x", "--config", "retention.ms"], 2, "--config name=value"),
        (["create", "x", "--partitions", "0"], 2, "--partitions"),
        (["create", "x", "--replicas", "3"], 1, "no more replicas than brokers"),
        (["alter", "x"], 2, "nothing to change"),
        (["create"], 2, "penstock topic create --help"),
    ],
)
def test_refusals_say_what_to_do(topic: Topic, arguments: list[str], code: int, words: str) -> None:
    done = topic(*arguments)
    assert done.code == code
    assert words in done.said()


def test_describe_does_not_create_what_it_looks_for(topic: Topic) -> None:
    topic("describe", "ghost")
    assert "ghost" not in {entry["name"] for entry in topic("list", "--json").json}


def test_taken_names_are_refused(topic: Topic) -> None:
    assert topic("create", "taken", "--partitions", "3").code == 0
    again = topic("create", "taken")
    assert again.code == 1
    assert "exists already" in again.said()


def test_nobody_there_is_said_at_once() -> None:
    done = penstock("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert done.code == 1
    assert done.said() == (
        "nothing answers at 127.0.0.1:1: start a broker with `penstock up`, or give the bootstrap address of one "
        "that runs"
    )


def test_global_options_work_before_and_after_the_command(running: BrokerProcess) -> None:
    for arguments in (
        ["--bootstrap", running.bootstrap, "--json", "topic", "list"],
        ["topic", "list", "--bootstrap", running.bootstrap, "--json"],
    ):
        assert isinstance(penstock(*arguments).json, list)
    assert penstock("topic", "list", "--bootstrap", running.bootstrap, bootstrap="127.0.0.1:1").code == 0
