"""`penstock txn`, and what `why`, `consume` and `verify` say of transactions: on a live broker, with librdkafka."""

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import Done, penstock, penstock_here
from tests.integration.raw import wait_until

from penstock.client.admin.transactions import TransactionAdmin
from penstock.testing import BrokerProcess, broker

# Clients outlive the broker, and other tests look at what is written to stderr.
QUIET = {"log_level": 0}
_names = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"penstock.transactions.enable": "true"}) as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    return a_topic(running)


def a_topic(running: BrokerProcess, **config: str) -> str:
    name = f"orders-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result()
    return name


class Writer:
    """A transactional producer of one topic, named after it."""

    def __init__(self, running: BrokerProcess, topic: str) -> None:
        self.topic, self._bootstrap = topic, running.bootstrap
        self.producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": topic, **QUIET})
        self.producer.init_transactions(30)

    def begin(self, *values: str) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, key=value, partition=0)
        assert self.producer.flush(30) == 0

    def commit(self, *values: str) -> None:
        self.begin(*values)
        self.commit_open()

    def commit_open(self) -> None:
        self.producer.commit_transaction(30)
        self._settled()

    def abort(self, *values: str) -> None:
        self.begin(*values)
        self.producer.abort_transaction(30)
        self._settled()

    def _settled(self) -> None:
        """A producer is answered before the markers are written."""
        with TransactionAdmin(self._bootstrap) as admin:
            wait_until(
                lambda: admin.describe([self.topic])[self.topic].state.startswith("Complete"), "the end"
            )


def plain(running: BrokerProcess, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, **QUIET})
    for value in values:
        producer.produce(topic, value, key=value, partition=0)
    assert producer.flush(30) == 0


def forget(running: BrokerProcess) -> None:
    """What coordinators know: what is open in partitions hangs from now on."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **QUIET})
    admin.delete_topics(["__transaction_state"])["__transaction_state"].result()


class Shell:
    """The command line, in this process."""

    def __init__(self, running: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
        self._running, self._capfd = running, capfd

    def __call__(self, *words: str) -> Done:
        return penstock_here(self._capfd, *words, bootstrap=self._running.bootstrap)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.code == 0, done.err
        return done.json

    def read(self, topic: str, *options: str) -> list[str]:
        done = penstock(
            "consume", topic, "--from-beginning", "--no-follow", *options, bootstrap=self._running.bootstrap
        )
        assert done.code == 0, done.err
        return done.out.split()

    def finding(self, topic: str) -> dict[str, Any]:
        (found,) = [each for each in self.json("why", topic)["findings"] if each["check"] == "transaction"]
        return dict(found)


@pytest.fixture
def shell(running: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(running, capfd)


COMMITTED = ("--isolation", "read_committed")


def test_transactions_are_listed_and_described(running: BrokerProcess, shell: Shell, topic: str) -> None:
    writer = Writer(running, topic)
    begun = time.time_ns() // 1_000_000
    writer.begin("1")
    (found,) = shell.json("txn", "list", "--pattern", topic)
    assert (found["transactional_id"], found["state"], found["coordinator"]) == (topic, "Ongoing", 1)
    assert 0 <= found["open_ms"] <= time.time_ns() // 1_000_000 - begun + 1000
    whole = shell.json("txn", "describe", topic)
    assert whole["partitions"] == [{"topic": topic, "partition": 0}]
    assert (whole["state"], whole["timeout_ms"], whole["producer_id"]) == (
        "Ongoing",
        60_000,
        found["producer_id"],
    )
    assert f"`penstock txn abort {topic}` ends it now" in whole["advice"]
    text = shell("txn", "describe", topic).out
    assert f"{topic} has a transaction open for " in text
    assert "partition" in text
    writer.commit_open()
    assert shell.json("txn", "describe", topic)["open_ms"] is None
    assert "has committed its latest transaction" in shell("txn", "describe", topic).out


def test_the_list_is_filtered_as_asked(running: BrokerProcess, shell: Shell, topic: str) -> None:
    writer, other = Writer(running, topic), Writer(running, a_topic(running))
    writer.begin("1")
    other.commit("1")
    ids = sorted([topic, other.topic])

    def listed(*options: str) -> list[str]:
        return [
            each["transactional_id"]
            for each in shell.json("txn", "list", *options)
            if each["transactional_id"] in ids
        ]

    assert listed() == ids
    assert listed("--state", "ongoing") == [topic]
    assert listed("--state", "CompleteCommit", "--state", "Ongoing") == ids
    number = str(shell.json("txn", "describe", topic)["producer_id"])
    assert listed("--producer-id", number) == [topic]
    assert listed("--longer-than", "1h") == []
    assert listed("--pattern", f"({topic}|x)") == [topic]
    lines = shell("txn", "list").out.splitlines()
    assert lines[0].split() == ["transactional", "id", "state", "producer", "coordinator", "open", "for"]
    writer.producer.abort_transaction(30)
    assert "INVALID_REGULAR_EXPRESSION" in shell("txn", "list", "--pattern", "(").said()
    assert "no transactional id is like that" in shell("txn", "list", "--longer-than", "1h").out
    assert "under way" in shell("txn", "list", "--state", "Empty", "--longer-than", "1s").said()


def test_an_id_that_nobody_has_is_told(shell: Shell) -> None:
    for verb in ("describe", "abort"):
        done = shell("txn", verb, "nobody")
        assert (done.code, done.said()) == (
            1,
            "there is no transactional id nobody: see `penstock txn list`",
        )


def test_an_open_transaction_is_aborted_by_its_id(running: BrokerProcess, shell: Shell, topic: str) -> None:
    writer = Writer(running, topic)
    writer.begin("1")
    plain(running, topic, "2")
    refused = shell("txn", "abort", topic)
    assert refused.code == 2
    assert "has a transaction open for" in refused.said()
    assert refused.said().endswith("say with --yes that it shall be aborted")
    assert shell.json("txn", "describe", topic)["state"] == "Ongoing"
    assert shell.read(topic, *COMMITTED) == []
    assert "its producer is fenced" in shell("txn", "abort", topic, "--yes").out
    assert shell.read(topic, *COMMITTED) == ["2"]
    with pytest.raises(KafkaException):
        writer.commit_open()
    assert "there is nothing to abort" in shell("txn", "abort", topic, "--yes").said()


def test_consume_shows_what_is_asked_for(running: BrokerProcess, shell: Shell, topic: str) -> None:
    writer = Writer(running, topic)
    writer.commit("1", "2")
    writer.abort("3")
    writer.begin("4")
    plain(running, topic, "5")
    assert shell.read(topic) == ["1", "2", "3", "4", "5"]
    assert shell.read(topic, "--isolation", "read_uncommitted") == ["1", "2", "3", "4", "5"]
    assert shell.read(topic, *COMMITTED) == ["1", "2"]
    group = ("--group", topic, *COMMITTED)
    assert shell.read(topic, *group) == ["1", "2"]
    writer.commit_open()
    assert shell.read(topic, *COMMITTED) == ["1", "2", "4", "5"]
    assert shell.read(topic, *group) == ["4", "5"]
    done = shell("consume", topic, *COMMITTED, "--from-archive", "/nowhere")
    assert (done.code, "leave out --isolation" in done.said()) == (2, True)


def test_why_names_the_transaction_that_holds_readers_back(
    running: BrokerProcess, shell: Shell, topic: str
) -> None:
    writer = Writer(running, topic)
    writer.commit("0")
    writer.begin("1")
    plain(running, topic, "2", "3")
    found = shell.json("why", topic)
    (held,) = found["held_back"]
    assert (held["transactional_id"], held["last_stable_offset"], held["start_offset"]) == (topic, 2, 2)
    assert (held["high_watermark"], held["state"], held["hanging"]) == (5, "Ongoing", False)
    said = shell.finding(topic)["found"]
    assert f"{topic}-0: read_committed readers stop at 2, with 3 offsets to go: " in said
    assert f"transactional id {topic} (producer {held['producer_id']}, epoch 0)" in said
    assert said.endswith("s, in 1 partition")
    writer.commit_open()
    assert shell.json("why", topic)["held_back"] == []


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}])
def test_verify_takes_markers_and_aborted_messages_as_they_are(
    running: BrokerProcess, shell: Shell, config: dict[str, str]
) -> None:
    topic = a_topic(running, **config)
    writer = Writer(running, topic)
    writer.commit("1")
    writer.abort("1", "2")
    writer.begin("3")
    found = shell.json("verify", topic)
    (partition,) = found["partitions"]
    assert (found["identical"], partition["start"], partition["end"]) == (True, 0, 6)
    writer.producer.commit_transaction(30)


def test_what_hangs_is_found_and_aborted(running: BrokerProcess, shell: Shell, topic: str) -> None:
    """Its coordinator has forgotten it: the topic of coordinators is gone."""
    writer = Writer(running, topic)
    writer.begin("1")
    plain(running, topic, "2")
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    assert shell.json("txn", "find-hanging") == []
    refused = shell("txn", "abort", *place, "--yes").said()
    assert refused.endswith(f"to have that done now, `penstock txn abort {topic}`")
    forget(running)

    (found,) = shell.json("txn", "find-hanging", "--topic", topic)
    assert (found["start_offset"], found["hanging"], found["transactional_id"]) == (0, True, None)
    assert topic in shell("txn", "find-hanging").out
    told = shell.finding(topic)
    assert told["level"] == "fail"
    assert "hangs: no coordinator knows it, so nobody will ever end it" in told["found"]
    assert f"`penstock txn abort {' '.join(place)}`" in told["advice"]

    assert "1 (producer" not in shell("txn", "abort", *place[:-1], "1", "--yes").said()
    assert shell("txn", "abort", *place[:4]).code == 2
    assert "say with --yes" in shell("txn", "abort", *place).said()
    assert shell.read(topic, *COMMITTED) == []
    assert "read_committed readers go on behind it" in shell("txn", "abort", *place, "--yes").out
    assert shell.read(topic, *COMMITTED) == ["2"]
    assert "nothing is open there" in shell("txn", "abort", *place, "--yes").said()
    assert "no transaction hangs" in shell("txn", "find-hanging", "--topic", topic).out
    # Others begin anew.
    other = Writer(running, a_topic(running))
    other.commit("1")
    assert shell.read(other.topic, *COMMITTED) == ["1"]


def test_a_partition_is_aborted_by_its_producer_too(running: BrokerProcess, shell: Shell, topic: str) -> None:
    Writer(running, topic).begin("1")
    with TransactionAdmin(running.bootstrap) as admin:
        (open_,) = admin.open_in(admin.partitions([topic]))
    forget(running)
    done = shell.json(
        "txn", "abort", "--topic", topic, "--partition", "0", "--producer-id", str(open_.producer_id), "--yes"
    )
    assert (done["aborted"], done["start_offset"]) == (True, 0)


def test_files_with_transactions_are_sound(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", {"penstock.transactions.enable": "true"})
    process.start()
    try:
        topic = a_topic(process)
        writer = Writer(process, topic)
        writer.commit("1")
        writer.abort("2")
    finally:
        process.stop()
    done = penstock("verify", "--data-dir", str(process.data_dir), "--json")
    assert done.code == 0, done.err
    assert all(not each["wrong"] for each in json.loads(done.out)["partitions"])


def test_where_transactions_are_off_that_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with broker() as off:
        shell = Shell(off, capfd)
        for command in (["list"], ["describe", "x"], ["abort", "x", "--yes"]):
            done = shell("txn", *command)
            assert (done.code, "behind penstock.transactions.enable" in done.said()) == (1, True)
        assert "no transaction hangs" in shell("txn", "find-hanging").out
        topic = a_topic(off)
        assert shell.json("why", topic)["held_back"] == []


def test_looking_at_transactions_makes_no_topic(capfd: pytest.CaptureFixture[str]) -> None:
    with broker({"penstock.transactions.enable": "true"}) as fresh:
        shell, topic = Shell(fresh, capfd), a_topic(fresh)
        assert "no transactional ids yet" in shell("txn", "list").out
        assert "no transaction hangs" in shell("txn", "find-hanging").out
        assert shell.json("why", topic)["held_back"] == []
        for verb in ("describe", "abort"):
            assert "there is no transactional id x" in shell("txn", verb, "x").said()
        found = AdminClient({"bootstrap.servers": fresh.bootstrap, **QUIET}).list_topics(timeout=30)
        assert list(found.topics) == [topic]
