"""`penstock produce` and `penstock consume`: what goes in comes out, and both end well."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.commands import COMMAND, Done, environment, penstock

from penstock.client.admin.admin import Admin
from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


def produce(running: BrokerProcess, topic: str, lines: str | bytes, *options: str) -> Done:
    return penstock("produce", topic, *options, bootstrap=running.bootstrap, stdin=lines)


def consume(running: BrokerProcess, topic: str, *options: str) -> Done:
    return penstock("consume", topic, "--no-follow", *options, bootstrap=running.bootstrap)


def messages(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_lines_come_back_in_order(running: BrokerProcess) -> None:
    lines = "".join(f"line {i}\n" for i in range(3000)) + "\nlast, after an empty one"
    sent = produce(running, "ordered", lines, "--json")
    assert sent.code == 0, sent.err
    assert (sent.json["acknowledged"], sent.json["failed"]) == (3002, 0)
    assert consume(running, "ordered", "--from-beginning").out == lines + "\n"


def test_keys_headers_and_tags_travel(running: BrokerProcess) -> None:
    options = ("--key-sep", ":", "--tag", "checkout", "--tag", "eu", "--header", "host=web-1")
    assert produce(running, "dressed", "k1:a:b\nk2:\n", *options).code == 0
    first, second = messages(consume(running, "dressed", "--from-beginning", "--format", "json"))
    assert (first["key"], first["value"], second["key"], second["value"]) == ("k1", "a:b", "k2", "")
    assert first["headers"] == [
        {"name": "host", "value": "web-1"},
        {"name": "tags", "value": "checkout,eu"},
    ]
    assert (first["topic"], first["partition"], first["offset"]) == ("dressed", 0, 0)


def test_bytes_that_are_not_text_survive(running: BrokerProcess) -> None:
    assert produce(running, "binary", b"\xff\x00\xfe\n").code == 0
    (message,) = messages(consume(running, "binary", "--from-beginning", "--json"))
    assert message["value_base64"] == "/wD+"
    raw = subprocess.run(
        [*COMMAND, "consume", "binary", "--from-beginning", "--no-follow"],
        env=environment(running.bootstrap),
        capture_output=True,
        check=True,
    )
    assert raw.stdout == b"\xff\x00\xfe\n"


@pytest.mark.parametrize(
    ("compression", "acks"), [("gzip", "0"), ("snappy", "1"), ("lz4", "all"), ("zstd", "1")]
)
def test_every_compression_and_acks(running: BrokerProcess, compression: str, acks: str) -> None:
    topic = f"packed-{compression}-{acks}"
    lines = "the same again\n" * 500
    assert produce(running, topic, lines, "--compression", compression, "--acks", acks).code == 0
    assert (
        penstock("consume", topic, "--from-beginning", "--max", "500", bootstrap=running.bootstrap).out
        == lines
    )


def test_line_without_key_fails_alone(running: BrokerProcess) -> None:
    done = produce(running, "keyed", "a:1\nbroken\nb:2\n", "--key-sep", ":")
    assert done.code == 1
    assert "line 2 has no ':'" in done.said()
    assert "1 failed" in done.out
    assert consume(running, "keyed", "--from-beginning").out == "1\n2\n"


def test_too_large_message_fails_alone_and_says_so(running: BrokerProcess) -> None:
    done = produce(running, "large", "small\n" + "x" * 2_000_000 + "\n")
    assert done.code == 1
    assert "too large" in done.said()
    assert consume(running, "large", "--from-beginning").out == "small\n"


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_a_failure_that_nobody_hears_of_is_in_the_exit_code(running: BrokerProcess, closed: str) -> None:
    """Whoever read what it prints has gone, or there never was anybody."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "produce", "unheard"],
        input=b"x" * 2_000_000 + b"\nsmall\n",
        stdout=writer,
        stderr=writer,
        env=environment(running.bootstrap),
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1
    assert consume(running, "unheard", "--offset", "-1").out == "small\n"


def test_places_to_start(running: BrokerProcess) -> None:
    penstock("topic", "create", "places", "--partitions", "2", bootstrap=running.bootstrap)
    assert produce(running, "places", "".join(f"k{i}:v{i}\n" for i in range(40)), "--key-sep", ":").code == 0
    everything = messages(consume(running, "places", "--from-beginning", "--json"))
    assert len(everything) == 40
    ones = [m for m in everything if m["partition"] == 1]
    assert messages(consume(running, "places", "--from-beginning", "--partition", "1", "--json")) == ones
    assert messages(consume(running, "places", "--offset", "3", "--partition", "1", "--json")) == ones[3:]
    assert messages(consume(running, "places", "--offset", "-2", "--partition", "1", "--json")) == ones[-2:]
    assert messages(consume(running, "places", "--offset", "10000", "--json")) == []
    assert messages(consume(running, "places", "--since", "1h", "--partition", "1", "--json")) == ones
    later = str(max(m["timestamp_ms"] for m in everything) + 1)
    assert messages(consume(running, "places", "--since", later, "--json")) == []
    assert messages(consume(running, "places", "--json")) == []
    assert len(messages(consume(running, "places", "--from-beginning", "--max", "7", "--json"))) == 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["consume", "absent"], 1, "there is no topic absent"),
        (["consume", "there", "--partition", "9"], 1, "--partition"),
        (["consume", "there", "--since", "soon"], 2, "is not a time"),
        (["consume", "there", "--since", "5m", "--offset", "1"], 2, "give one of"),
        (["consume", "there", "--bootstrap", "127.0.0.1:1"], 1, "penstock up"),
        (["produce", "there", "--bootstrap", "127.0.0.1:1"], 1, "penstock up"),
        (["produce", "no/topic"], 1, "no/topic"),
        (["produce", "there", "--acks", "most"], 2, "--acks"),
        (["produce", "there", "--tag", "a,b"], 2, "--tag"),
        (["produce", "there", "--header", "x"], 2, "--header name=value"),
        (["produce", "there", "--compression", "rar"], 2, "--compression"),
    ],
)
def test_refusals_say_what_to_do(running: BrokerProcess, arguments: list[str], code: int, words: str) -> None:
    assert produce(running, "there", "x\n").code == 0
    done = penstock(*arguments, bootstrap=running.bootstrap, stdin="x\n")
    assert done.code == code
    assert words in done.said()


def test_topic_is_not_made_by_producing_where_the_broker_says_so() -> None:
    with broker({"auto.create.topics.enable": "false"}) as strict:
        done = produce(strict, "mistyped", "x\n")
        assert done.code == 1
        assert "penstock topic create mistyped" in done.said()


def follow(running: BrokerProcess, topic: str, *start: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, "consume", topic, *start],
        env=environment(running.bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_follows_until_interrupted(running: BrokerProcess) -> None:
    produce(running, "followed", "one\n")
    with follow(running, "followed", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "one\n"
        produce(running, "followed", "two\n")
        assert process.stdout.readline() == "two\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_ends_when_its_reader_has_gone_even_if_nothing_more_arrives(running: BrokerProcess) -> None:
    produce(running, "piped", "one\n")
    with follow(running, "piped", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "one\n"
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == ""


def test_follows_through_a_restart_of_the_broker() -> None:
    with broker() as restarted:
        produce(restarted, "patient", "one\n")
        with follow(restarted, "patient", "--from-beginning") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "one\n"
            restarted.kill()
            restarted.start()
            produce(restarted, "patient", "two\n")
            assert process.stdout.readline() == "two\n"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0


@pytest.mark.parametrize("start", [(), ("--from-beginning",)])
def test_follows_a_topic_that_is_made_again(running: BrokerProcess, start: tuple[str, ...]) -> None:
    """It printed nothing until the new log had passed the old end."""
    topic = "again-" + "-".join(start).strip("-")
    produce(running, topic, "old\n" * 5)
    admin = Admin(running.bootstrap)
    with follow(running, topic, *start) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(5 if start else 0):
            assert process.stdout.readline() == "old\n"
        if not start:  # it has begun when it prints what comes
            while not select.select([process.stdout], [], [], 0.5)[0]:
                produce(running, topic, "old\n")
        admin.delete(topic)
        admin.create(topic, partitions=2)
        produce(running, topic, "new 1\nnew 2\n")
        said = process.stderr.readline()
        assert said.endswith(
            "was deleted and made again; what follows is the new one, from its first message\n"
        )
        lines: list[str] = []
        while len({line for line in lines if line.startswith("new")}) < 2:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert process.stderr.read() == ""


def test_offset_that_the_log_has_not_reached_is_waited_for_not_rounded(running: BrokerProcess) -> None:
    from penstock.client.console.reader import ConsoleReader, Range

    assert produce(running, "ahead", "a\nb\nc\nd\n").code == 0
    # As `ranges` finds it when only two were there: fetching starts at the end, showing at the offset asked for.
    reader = ConsoleReader(running.bootstrap, "ahead", {0: Range(start=2, first=3, end=4)}, follow=False)
    try:
        shown = []
        while not reader.done:
            shown += [message.value() for message in reader.read(1.0)]
        assert shown == [b"d"]
    finally:
        reader.close()
