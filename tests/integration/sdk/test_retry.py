"""Retries and dead letters (SPEC A3): the main flow goes on, tries survive, order per key is kept where asked."""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.integration.commands import penstock
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, ClientError, Consumer, Message, Producer, Retry
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.dead_letters import DeadLetterBox

NewTopic = Callable[[int], str]


def group_of(topic: str) -> str:
    """One for each test: members that were killed linger in their group for a while."""
    return f"{topic}-g"


def send(cluster: Cluster, topic: str, values: list[str], keys: list[str] | None = None) -> None:
    with Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, values, keys=keys).result()


def dead_letters(cluster: Cluster, topic: str, count: int) -> list[Message]:
    found = []
    with Consumer(cluster.bootstrap, f"{topic}.{group_of(topic)}.dlq") as consumer:
        while len(found) < count:
            message = consumer.receive()
            assert message is not None
            found.append(message)
    return found


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_poison_message_never_delays_those_behind_it(
    cluster: Cluster, new_topic: NewTopic, ordered: bool
) -> None:
    """Its next try is an hour away; the others are worked off now."""
    topic = new_topic(1)
    values = ["poison", *map(str, range(50))]
    send(cluster, topic, values, keys=values)
    order = []
    policy = Retry(attempts=3, backoff="1h", ordered_by_key=ordered)
    with Consumer(cluster.bootstrap, topic, group=group_of(topic), retry=policy) as consumer:
        for message in consumer:
            with consumer.handling(message):
                order.append(message.value.decode())
                if message.value == b"poison":
                    raise ValueError("bad")
                if message.value == b"49":
                    break
    assert order == values


def test_a_poison_message_ends_as_a_dead_letter(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    others = [str(number) for number in range(50)]
    send(cluster, topic, ["poison", *others])
    order: list[tuple[str, int]] = []
    with Consumer(
        cluster.bootstrap, topic, group=group_of(topic), retry=Retry(attempts=3, backoff="200ms..400ms")
    ) as consumer:

        def handle(message: Message) -> None:
            order.append((message.value.decode(), message.attempt))
            if len(order) == len(others) + 3:
                consumer.stop()
            if message.value == b"poison":
                raise ValueError("bad\nmessage")

        consumer.run(handle)
    assert order[0] == ("poison", 1)
    assert [handled for handled in order if handled[0] == "poison"] == [
        ("poison", attempt) for attempt in (1, 2, 3)
    ]
    assert [handled for handled in order if handled[0] != "poison"] == [(value, 1) for value in others]
    (dead,) = dead_letters(cluster, topic, 1)
    assert dead.value == b"poison"
    assert dead.origin == (topic, 0, 0)
    assert retry_headers.failures(dead.headers) == 3
    assert retry_headers.error(dead.headers) == "ValueError: bad message"
    assert len(retry_headers.history(dead.headers)) == 3
    assert dead.id is not None


def test_a_message_that_works_in_the_end_is_done_once(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    send(cluster, topic, [str(n) for n in range(20)], keys=[str(n) for n in range(20)])
    done: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    with Consumer(
        cluster.bootstrap, topic, group=group_of(topic), retry=Retry(attempts=4, backoff="50ms..100ms")
    ) as consumer:
        for message in consumer:
            with consumer.handling(message):
                value = message.value.decode()
                tries[value] += 1
                assert message.attempt == tries[value]
                if tries[value] <= int(value) % 3:
                    raise RuntimeError(value)
                done[value] += 1
                if len(done) == 20:
                    consumer.stop()
    assert done == Counter(str(n) for n in range(20))


FAILING = """
import sys
from penstock import Consumer, Retry
retry = Retry(attempts=100, backoff="500ms", ordered_by_key=sys.argv[3] == "ordered")
options = {"retry": retry, "config": {"group.instance.id": "the-one"}, "commit_every": 0}
with Consumer(sys.argv[1], sys.argv[2], group=sys.argv[2] + "-g", **options) as consumer:
    for message in consumer:
        with consumer.handling(message):
            print(message.value.decode(), flush=True)
            if message.value == b"poison":
                raise ValueError("boom")
"""


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it has ended"
    return line


@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_a_pending_retry_survives_a_restart(cluster: Cluster, new_topic: NewTopic, mode: str) -> None:
    topic = new_topic(1)
    send(cluster, topic, ["poison", "good"], keys=["a", "b"])
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING, cluster.bootstrap, topic, mode], stdout=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    while lines.count("poison\n") < 2 or "good\n" not in lines:
        lines.append(said(process))
    send(cluster, topic, ["after"], keys=["b"])
    while lines[-1] != "after\n":  # committed by then: the second try is over
        lines.append(said(process))
    assert [line for line in lines if line != "poison\n"] == ["good\n", "after\n"]
    process.kill()
    process.communicate()
    policy = Retry(attempts=100, backoff="10ms", ordered_by_key=mode == "ordered")
    seen = []
    with Consumer(
        cluster.bootstrap, topic, group=group_of(topic), retry=policy, config={"group.instance.id": "the-one"}
    ) as consumer:
        for message in consumer:
            with consumer.handling(message):
                seen.append(message.value.decode())
                if message.value == b"poison":
                    break
    assert "poison" in seen
    assert set(seen) <= {"poison", "after"}, "what was committed does not come again"


def test_order_per_key_is_kept_where_asked(cluster: Cluster, new_topic: NewTopic) -> None:
    """Keys fail in turn; each key's messages are worked off in order, the others do not wait for it."""
    topic = new_topic(2)
    keys = [f"key-{n % 5}" for n in range(60)]
    send(cluster, topic, [str(n) for n in range(60)], keys=keys)
    done: defaultdict[bytes, list[int]] = defaultdict(list)
    tries: Counter[int] = Counter()
    policy = Retry(attempts=5, backoff="50ms..200ms", ordered_by_key=True)
    for _ in range(2):  # the second consumer finds keys that the first one left waiting
        with Consumer(cluster.bootstrap, topic, group=group_of(topic), retry=policy) as consumer:
            for message in consumer:
                with consumer.handling(message):
                    number = int(message.value)
                    tries[number] += 1
                    if number in (0, 11, 12, 30) and tries[number] < 3:
                        raise RuntimeError(f"{number} is not ready")
                    assert message.key is not None
                    done[message.key].append(number)
                    total = sum(map(len, done.values()))
                    if total in (30, 60):
                        break
    for n in range(5):
        assert done[f"key-{n}".encode()] == list(range(n, 60, 5))


def test_ordered_messages_that_never_work_end_as_dead_letters(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    send(cluster, topic, ["bad", "x1", "other", "x2"], keys=["x", "x", "y", "x"])
    order = []
    policy = Retry(attempts=3, backoff="50ms", ordered_by_key=True)
    with Consumer(cluster.bootstrap, topic, group=group_of(topic), retry=policy) as consumer:
        for message in consumer:
            with consumer.handling(message):
                order.append(message.value.decode())
                if message.value == b"bad":
                    raise ValueError("never")
                if len(order) == 6:
                    break
    assert [value for value in order if value != "other"] == ["bad", "bad", "bad", "x1", "x2"]
    assert order.count("other") == 1
    (dead,) = dead_letters(cluster, topic, 1)
    assert retry_headers.failures(dead.headers) == 3
    assert [entry["error"] for entry in retry_headers.history(dead.headers)] == ["ValueError: never"] * 3


def test_without_dead_letters_the_last_failure_is_logged(
    cluster: Cluster, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(1)
    send(cluster, topic, ["bad", "good"])
    with Consumer(
        cluster.bootstrap, topic, group=group_of(topic), retry=Retry(attempts=1, dead_letter=False)
    ) as consumer:

        def handle(message: Message) -> None:
            if message.value == b"bad":
                raise ValueError("never")
            consumer.stop()

        consumer.run(handle)
    assert "after 1 tries: ValueError: never" in caplog.text


def test_retry_needs_a_group(cluster: Cluster, new_topic: NewTopic) -> None:
    with pytest.raises(ClientError, match="retry needs a group"):
        Consumer(cluster.bootstrap, new_topic(1), retry=Retry())


def test_dead_letters_on_the_command_line(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    send(cluster, topic, ["a", "b", "c"], keys=["1", "2", "3"])
    with Consumer(cluster.bootstrap, topic, group=group_of(topic), retry=Retry(attempts=1)) as consumer:
        for handled, message in enumerate(consumer, 1):
            with consumer.handling(message):
                raise ValueError(f"cannot do {message.value.decode()}")
            if handled == 3:
                break
    listed = penstock("dlq", "list", "--json", bootstrap=cluster.bootstrap).json
    assert {
        "topic": topic,
        "group": group_of(topic),
        "dead_letters": f"{topic}.{group_of(topic)}.dlq",
        "waiting": 3,
        "replayed": 0,
        "retrying": 0,
        "due_ms": None,
    } in listed
    shown = penstock(
        "dlq", "show", topic, "--group", group_of(topic), "--json", bootstrap=cluster.bootstrap
    ).json
    assert sorted(letter["value"] for letter in shown) == ["a", "b", "c"]
    assert {letter["error"] for letter in shown} == {f"ValueError: cannot do {value}" for value in "abc"}
    assert {letter["origin"]["topic"] for letter in shown} == {topic}
    done = penstock(
        "dlq", "replay", topic, "--group", group_of(topic), "--max", "2", bootstrap=cluster.bootstrap
    )
    assert (done.code, "replayed 2 messages" in done.out) == (0, True)
    done = penstock("dlq", "replay", topic, "--group", group_of(topic), "--json", bootstrap=cluster.bootstrap)
    assert json.loads(done.out)["replayed"] == 1
    with Consumer(cluster.bootstrap, topic, group=group_of(topic)) as consumer:
        again = [consumer.receive() for _ in range(3)]
    assert sorted(message.value for message in again if message is not None) == [b"a", b"b", b"c"]
    assert {message.attempt for message in again if message is not None} == {1}
    failed = penstock("dlq", "show", "nowhere", "--group", group_of(topic), bootstrap=cluster.bootstrap)
    assert failed.code == 1
    assert "no dead letters" in failed.said()


def test_a_replay_that_cannot_deliver_says_so_and_marks_nothing(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic, group = new_topic(1), "replay"
    with Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, [os.urandom(2000) for _ in range(5)]).result()
    with Consumer(cluster.bootstrap, topic, group=group, retry=Retry(attempts=1)) as consumer:
        for handled, message in enumerate(consumer, 1):
            with consumer.handling(message):
                raise ValueError("no")
            if handled == 5:
                break
    admin, box = Admin(cluster.bootstrap), DeadLetterBox(cluster.bootstrap)
    admin.alter_configs(topic, {"max.message.bytes": "500"})
    with pytest.raises(ClientError, match="too large"):
        box.replay(topic, group)
    assert [letters.waiting for letters in box.all() if letters.topic == topic] == [5]
    admin.alter_configs(topic, {"max.message.bytes": "1000000"})
    # Two at once share what there is, and both come to an end.
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(box.replay, topic, group) for _ in range(2)]
        assert sum(replay.result() for replay in done) >= 5
    assert [letters.waiting for letters in box.all() if letters.topic == topic] == [0]
    assert [partition.latest for partition in admin.describe(topic).partitions] >= [10]


def test_showing_dead_letters_ends_also_when_retention_was_faster(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1)
    Admin(cluster.bootstrap).create(f"{topic}.g.dlq", partitions=2)
    with Producer(cluster.bootstrap) as producer:
        producer.send(f"{topic}.g.dlq", b"dead", partition=0).result()
    box = DeadLetterBox(cluster.bootstrap)
    monkeypatch.setattr(box, "_left", lambda *_: {0: (0, 3), 1: (0, 2)})  # as it was a moment ago
    assert [message.value for message in box.messages(topic, "g")] == [b"dead"]


def test_a_large_message_is_retried_and_what_waits_is_kept(cluster: Cluster, new_topic: NewTopic) -> None:
    """Whatever the broker's defaults for topics are."""
    topic = new_topic(1)
    admin = Admin(cluster.bootstrap)
    admin.alter_configs(topic, {"max.message.bytes": "5000000"})
    send(cluster, topic, ["x" * 4_900_000])
    retry = Retry(attempts=2, backoff="100ms")
    tries = []
    with Consumer(cluster.bootstrap, topic, group=group_of(topic), retry=retry) as consumer:
        for message in consumer:
            with consumer.handling(message):
                tries.append(message.attempt)
                if message.attempt == 2:
                    break
                raise ValueError("no")
    assert tries == [1, 2]
    for kind in ("retry", "dlq"):
        assert admin.own_configs(f"{topic}.{group_of(topic)}.{kind}")["retention.ms"] == "-1"
