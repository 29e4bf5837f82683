"""A consumer of several topics, one of which is deleted: commits are refused before the group hears of it in a poll."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError, TopicPartition
from tests.unit.client.scripted import Broker, RawConsumer, install
from tests.unit.client.scripted_message import Stored

from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError

A, B = ("a", 0), ("b", 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make("a", 1)
    broker.make("b", 1)
    install(broker, monkeypatch.setattr)
    return broker


def opened(broker: Broker, **options: Any) -> Consumer:
    consumer = Consumer("scripted", ["a", "b"], group="g", stop_on=(), **options)
    raw(broker).queue.append(("assign", [A, B]))
    return consumer


def raw(broker: Broker) -> RawConsumer:
    assert broker.consumer is not None
    return broker.consumer


def send(broker: Broker, place: tuple[str, int], count: int) -> None:
    for number in range(count):
        broker.append(place, b"%s%d" % (place[0].encode(), number), None, [])


def delete(broker: Broker, place: tuple[str, int] = A) -> None:
    """Its topic; librdkafka tells of it once, and it goes from the group with its next poll."""
    broker.unknown.add(place)
    gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    raw(broker).queue += [("error", Stored(place, wrong=gone)), ("revoke", [place])]


def values(consumer: Consumer, rounds: int = 20) -> list[bytes]:
    found = (consumer.receive(0.1) for _ in range(rounds))
    return [message.value for message in found if message is not None]


def test_a_commit_for_a_topic_that_was_deleted_does_not_keep_the_group_from_hearing_of_it(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = opened(broker, commit_every=0)
    send(broker, A, 1)
    assert values(consumer, 1) == [b"a0"]
    send(broker, B, 3)
    delete(broker)
    assert values(consumer) == [b"b0", b"b1", b"b2"]
    assert consumer.assignment == [B]
    consumer.close()
    assert broker.committed.keys() == {B}
    assert broker.committed[B][0] == 3
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "group g cannot commit its place in a, partition 0: there is no such topic or partition any more",
        "group g reads on without topic a: it was deleted",
    ]


def test_a_loop_goes_on_when_a_topic_is_deleted(broker: Broker) -> None:
    consumer = opened(broker, commit_every=0)
    send(broker, A, 1)
    messages = iter(consumer)
    assert next(messages).value == b"a0"
    send(broker, B, 2)
    delete(broker)
    assert [next(messages).value, next(messages).value] == [b"b0", b"b1"]


def test_the_commits_of_the_others_count(broker: Broker) -> None:
    consumer = opened(broker, commit_every=1000)
    send(broker, A, 1)
    send(broker, B, 1)
    assert values(consumer, 2) == [b"a0", b"b0"]
    broker.unknown.add(A)
    consumer.commit()
    assert broker.committed[B][0] == 1
    broker.unknown.clear()  # the coordinator had only not heard of it
    consumer.commit()
    assert broker.committed[A][0] == 1


def test_a_refusal_for_all_is_asked_for_each(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka tells the last one's alone: that of another partition may be for another reason."""
    consumer = opened(broker, commit_every=1000)
    send(broker, A, 1)
    send(broker, B, 1)
    values(consumer, 2)
    broker.unknown.update({A, B})
    answers = RawConsumer._apply
    asked: list[int] = []

    def answer(consumer: RawConsumer, offsets: list[Any]) -> Any:
        asked.append(len(offsets))
        found = answers(consumer, offsets)
        broker.unknown.discard(B)  # at the second time of asking
        return found

    monkeypatch.setattr(RawConsumer, "_apply", answer)
    consumer.commit()
    assert asked == [2, 1, 1]
    assert broker.committed.keys() == {B}


def test_what_fails_otherwise_is_still_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = opened(broker, commit_every=1000)
    send(broker, A, 1)
    values(consumer, 1)
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    monkeypatch.setattr(RawConsumer, "_apply", lambda *_: (refused, []))
    with pytest.raises(ClientError, match="group g"):
        consumer.commit()


@pytest.mark.parametrize("ask", ["receive", "batches"])
@pytest.mark.parametrize("commit_every", [0, 1])
def test_at_most_once_hands_out_what_was_committed_and_goes_on(
    broker: Broker, commit_every: float, ask: Literal["receive", "batches"]
) -> None:
    consumer = opened(broker, delivery="at-most-once", commit_every=commit_every)
    values(consumer, 1)
    send(broker, A, 2)
    send(broker, B, 2)
    broker.unknown.add(A)
    if ask == "batches":
        batches = consumer.batches(size=4, wait=0.1)
        first = next(batches)
        assert [message.value for message in first] == [b"b0", b"b1"]
    else:
        assert values(consumer) == [b"b0", b"b1"]
    assert broker.committed[B][0] == 2
    delete(broker)
    send(broker, B, 2)
    assert values(consumer) == [b"b0", b"b1"]
    assert consumer.assignment == [B]
    consumer.close()
    assert broker.committed.keys() == {B}


def test_where_a_group_began_need_not_be_committed_for_a_topic_that_is_gone(broker: Broker) -> None:
    consumer = opened(broker, start="latest")
    broker.unknown.add(A)
    assert values(consumer, 1) == []
    delete(broker)
    send(broker, B, 2)
    assert values(consumer) == [b"b0", b"b1"]


@pytest.mark.parametrize("start", ["latest", timedelta(0)])
def test_where_a_deleted_topic_begins_is_not_waited_for(
    broker: Broker, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes when it was just assigned: the poll that would take it away comes behind the question."""
    send(broker, A, 1)
    send(broker, B, 1)
    consumer = opened(broker, start=start)
    broker.unknown.add(A)
    assert values(consumer, 2) == []
    send(broker, B, 2)
    assert values(consumer) == [b"b0", b"b1"]
    delete(broker)
    send(broker, B, 1)
    assert values(consumer) == [b"b0"]
    assert consumer.assignment == [B]
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "where to begin in a, partition 0, is asked again: there is no such topic or partition",
        "group g reads on without topic a: it was deleted",
    ]


@pytest.mark.parametrize("start", ["latest", timedelta(0)])
def test_nothing_is_handed_out_of_a_partition_before_it_is_known_where_it_begins(
    broker: Broker, start: Any
) -> None:
    """The broker that was asked had only not heard of it."""
    send(broker, A, 2)
    consumer = opened(broker, start=start)
    broker.unknown.add(A)
    send(broker, B, 1)
    values(consumer, 5)
    broker.unknown.clear()
    assert values(consumer) == []
    send(broker, A, 1)
    send(broker, B, 1)
    assert values(consumer) == [b"a0", b"b0"]


def test_an_asynchronous_commit_that_is_refused_for_one_topic_says_nothing_of_the_others(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka gives each partition of it the error of the last."""
    consumer = opened(broker, commit_every=0.5)
    send(broker, A, 1)
    send(broker, B, 1)
    assert values(consumer, 3) == [b"a0", b"b0"]
    broker.unknown.add(A)
    values(consumer, 10)
    asked = [TopicPartition("a", 0, 1), TopicPartition("b", 0, 1)]
    consumer._reader.commits.ended(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), asked)
    values(consumer, 10)
    assert "in a, partition 0" in caplog.text
    assert "in b, partition 0" not in caplog.text


def test_who_reads_nothing_but_the_topic_that_is_deleted_is_told(broker: Broker) -> None:
    consumer = Consumer("scripted", "a", group="g", stop_on=())
    gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    raw(broker).queue += [("assign", [A]), ("error", Stored(A, wrong=gone))]
    with pytest.raises(ClientError, match="there is no topic a"):
        values(consumer)


@pytest.mark.parametrize("assigned_between", [False, True])
def test_who_reads_several_topics_is_told_once_all_are_deleted(
    broker: Broker, assigned_between: bool
) -> None:
    consumer = opened(broker, commit_every=0)
    send(broker, A, 1)
    assert values(consumer) == [b"a0"]
    delete(broker, A)
    if assigned_between:
        raw(broker).queue += [("revoke", [B]), ("assign", [B])]
    send(broker, B, 1)
    assert values(consumer) == [b"b0"]
    delete(broker, B)
    with pytest.raises(ClientError, match="there are no topics a, b any more"):
        values(consumer)
    assert values(consumer) == []  # told once; who asks on waits until they are made again
    broker.unknown.clear()
    raw(broker).queue.append(("assign", [B]))
    send(broker, B, 1)
    assert values(consumer) == [b"b0"]
