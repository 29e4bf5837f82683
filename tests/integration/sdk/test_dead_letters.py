"""Dead letters go back to where they came from, and once."""

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, Consumer, Message, Producer, Retry
from penstock.client.consuming.stopping import Stop
from penstock.client.errors import ClientError
from penstock.client.retry import dead_letters
from penstock.client.retry.dead_letters import DeadLetterBox, DeadLetters
from penstock.client.retry.replay_marks import ReplayMarks
from penstock.client.retry.sending_back import send_back

NewTopic = Callable[[int], str]


def give_up(cluster: Cluster, topic: str, group: str, *values: str) -> None:
    with Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, values).result()
    fail_all(cluster, topic, group, *values)


def fail_all(cluster: Cluster, topic: str, group: str, *values: str, attempts: int = 1) -> None:
    left = list(values) * attempts
    retry = Retry(attempts, backoff="1ms")
    with Consumer(cluster.bootstrap, topic, group=group, retry=retry) as consumer:

        def fail(message: Message) -> None:
            left.remove(message.value.decode())
            if not left:
                consumer.stop()
            raise ValueError("no")

        consumer.run(fail)


def test_what_was_replayed_is_not_replayed_again_when_commits_have_expired(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    assert box.replay(topic, "g", most=2) == 2
    admin.delete_group(f"{topic}/g.dlq.replay")
    found = [letters for letters in box.all() if letters.topic == topic]
    assert found == [DeadLetters(f"{topic}.g.dlq", topic, "g", waiting=1, replayed=2)]
    assert len(list(box.messages(topic, "g"))) == 1
    assert box.replay(topic, "g") == 1
    admin.delete_group(f"{topic}/g.dlq.replay")
    assert box.replay(topic, "g") == 0
    assert sum(admin.latest(topic, [0, 1]).values()) == 6


def test_a_replay_does_not_count_what_was_marked_and_not_committed(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    assert box.replay(topic, "g", most=2) == 2
    admin.reset_offsets(f"{topic}/g.dlq.replay", f"{topic}.g.dlq", "earliest")
    assert box.replay(topic, "g") == 1
    assert admin.latest(topic, [0]) == {0: 6}


@pytest.mark.parametrize("before_the_mark", [True, False])
def test_ctrl_c_sends_no_letter_back_twice(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, before_the_mark: bool
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    honest = ReplayMarks.write

    def write(marks: ReplayMarks, producer: Producer, batch: list[Message]) -> None:
        """The letters are acknowledged."""
        if before_the_mark:
            signal.raise_signal(signal.SIGINT)
        honest(marks, producer, batch)
        if not before_the_mark:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ReplayMarks, "write", write)
        with pytest.raises(KeyboardInterrupt):
            box.replay(topic, "g")
    assert admin.latest(topic, [0]) == {0: 6}
    assert box.replay(topic, "g") == 0
    assert admin.latest(topic, [0]) == {0: 6}


def test_who_stops_a_replay_is_told_how_far_it_got(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    honest = send_back

    def stopped_meanwhile(*given: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return honest(*given)

    with monkeypatch.context() as patch:
        patch.setattr(dead_letters, "_UNACKNOWLEDGED_MAX", 1)
        patch.setattr(dead_letters, "send_back", stopped_meanwhile)
        with pytest.raises(ClientError, match="stopped: 1 dead letters of"):
            box.replay(topic, "g")
    assert box.replay(topic, "g") == 2
    assert admin.latest(topic, [0]) == {0: 6}


def test_what_was_acknowledged_before_one_was_refused_does_not_go_back_twice(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3", "4")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    honest = Producer.pass_on

    def pass_on(producer: Producer, name: str, value: bytes, *rest: Any) -> Any:
        if value == b"3":
            raise ClientError("too large")
        return honest(producer, name, value, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "pass_on", pass_on)
        with pytest.raises(ClientError, match="too large"):
            box.replay(topic, "g")
    assert admin.latest(topic, [0]) == {0: 4 + 3}
    assert box.replay(topic, "g") == 2


def test_what_another_replay_has_marked_and_not_committed_does_not_go_back_twice(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between the two, after this one had looked what is left."""
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    honest = ReplayMarks.make

    def make(marks: ReplayMarks) -> None:
        honest(marks)
        with Producer(cluster.bootstrap) as producer:
            marks.write(producer, list(box.messages(topic, "g"))[:2])

    monkeypatch.setattr(ReplayMarks, "make", make)
    assert box.replay(topic, "g") == 1
    assert admin.latest(topic, [0]) == {0: 3 + 1}


def test_letters_that_fail_again_meanwhile_take_nobodys_place(
    cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(2)
    letters = f"{topic}.g.dlq"
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    admin.create(letters, partitions=2)
    honest = send_back

    def fail_again(producer: Producer, _: str, given: list[Message], oldest_ms: int) -> Any:
        sending = honest(producer, topic, given, oldest_ms)
        for letter in given:
            if letter.partition == 0:
                producer.send(letters, letter.raw_value, partition=0, headers=letter.headers).result()
        return sending

    with Producer(cluster.bootstrap) as producer:
        for index in (0, 1):
            told = [("penstock-origin", f"{topic}/{index}/0"), ("penstock-failures", "1")]
            for number in range(3):
                producer.send(letters, str(number), partition=index, headers=told).result()
    receive_many, looks = Consumer.receive_many, itertools.count()

    def late(consumer: Consumer, most: int, timeout: float) -> list[Message]:
        """Partition 1 comes late, as from a broker that is busy."""
        if next(looks) < 5:
            consumer.pause(letters, 1)
        else:
            consumer.resume(letters, 1)
        return receive_many(consumer, most, timeout)

    monkeypatch.setattr(Consumer, "receive_many", late)
    monkeypatch.setattr(dead_letters, "send_back", fail_again)
    monkeypatch.setattr(dead_letters, "_UNACKNOWLEDGED_MAX", 2)
    assert box.replay(topic, "g") == 6
    assert admin.latest(topic, [0, 1]) == {0: 3, 1: 3}
    assert admin.committed(f"{topic}/g.dlq.replay") == {(letters, 0): 3, (letters, 1): 3}
    found = [counted for counted in box.all() if counted.topic == topic]
    assert [(counted.waiting, counted.replayed) for counted in found] == [(3, 6)]


def test_what_the_last_release_replayed_is_not_replayed_again(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    admin.reset_offsets(f"{topic}.g.dlq.replay", f"{topic}.g.dlq", 2)
    found = [letters for letters in box.all() if letters.topic == topic]
    assert found == [DeadLetters(f"{topic}.g.dlq", topic, "g", waiting=1, replayed=2)]
    assert box.replay(topic, "g") == 1


def test_letters_of_a_topic_that_was_deleted_are_listed_and_shown(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "eu.g", "1", "2")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    admin.delete(topic)
    found = [letters for letters in box.all() if letters.name.startswith(topic)]
    assert found == [DeadLetters(f"{topic}.eu.g.dlq", topic, "eu.g", waiting=2, replayed=0)]
    assert len(list(box.messages(topic, "eu.g"))) == 2
    with pytest.raises(ClientError, match="there is no topic"):
        box.replay(topic, "eu.g")


@pytest.fixture
def application() -> Iterator[Stop]:
    """It has a loop of its own that a signal shall end."""
    stop = Stop((signal.SIGTERM,))
    stop.listen()
    yield stop
    stop.restore()


def test_a_signal_while_letters_or_marks_are_read_is_not_taken_for_their_end(
    cluster: Cluster, new_topic: NewTopic, application: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1)
    give_up(cluster, topic, "g", "1", "2", "3")
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    honest = Consumer.receive

    def receive(consumer: Consumer, timeout: float | None = None) -> Message | None:
        consumer._stop.listen()  # as it does with its first question
        signal.raise_signal(signal.SIGTERM)
        return honest(consumer, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "receive", receive)
        assert len(list(box.messages(topic, "g"))) == 3
    assert box.replay(topic, "g") == 3
    admin.delete_group(f"{topic}/g.dlq.replay")
    application.wanted = False
    monkeypatch.setattr(Consumer, "receive", receive)
    assert box.replay(topic, "g") == 0, "the marks say so"
    assert application.wanted


def test_a_letter_goes_back_into_its_partition_with_its_timestamp(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    """Unless it is so old that retention would take it before anybody has read it."""
    topic = new_topic(3)
    Admin(cluster.bootstrap).alter_configs(topic, {"retention.ms": "604800000"})
    now_ms = time.time_ns() // 1_000_000
    sent = {b"recent": (2, now_ms - 3_600_000), b"old": (1, now_ms - 600_000_000)}
    with Producer(cluster.bootstrap) as producer:
        for value, (partition, at_ms) in sent.items():
            producer.send(topic, value, key="k", partition=partition, timestamp=at_ms).result()
    fail_all(cluster, topic, "g", "recent", "old", attempts=2)
    assert DeadLetterBox(cluster.bootstrap).replay(topic, "g") == 2
    with Consumer(cluster.bootstrap, topic) as consumer:
        found = [consumer.receive() for _ in range(4)]
    again = {message.value: message for message in found if message is not None and message.offset == 1}
    assert {value: message.partition for value, message in again.items()} == {b"recent": 2, b"old": 1}
    assert again[b"recent"].timestamp == sent[b"recent"][1]
    assert (again[b"old"].timestamp or 0) >= now_ms
    assert [name for name, _ in again[b"recent"].headers] == ["penstock-id"]


def test_letters_of_topics_whose_dead_letter_topics_have_one_name_are_told_apart(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    """`orders` read by `eu.billing`, and `orders.eu` read by `billing`."""
    world = new_topic(1)
    europe = f"{world}.eu"
    box, admin = DeadLetterBox(cluster.bootstrap), Admin(cluster.bootstrap)
    admin.create(europe, partitions=1)
    give_up(cluster, world, "eu.billing", "of the world")
    name = f"{world}.eu.billing.dlq"
    assert [letters for letters in box.all() if letters.name == name] == [
        DeadLetters(name, world, "eu.billing", 1, 0)
    ]
    assert box.replay(europe, "billing") == 0
    give_up(cluster, europe, "billing", "of europe")
    assert [letter.value for letter in box.messages(europe, "billing")] == [b"of europe"]
    assert box.replay(world, "eu.billing", most=1) == 1
    assert [letters for letters in box.all() if letters.name == name] == [
        DeadLetters(name, europe, "billing", 1, 0),
        DeadLetters(name, world, "eu.billing", 0, 1),
    ]
    assert box.replay(europe, "billing") == 1
    assert (admin.latest(world, [0]), admin.latest(europe, [0])) == ({0: 2}, {0: 2})
