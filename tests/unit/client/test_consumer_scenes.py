"""Single scenes of what a consumer may meet; the story over random ones is in test_consumer_model.py."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.scripted import Broker, RawConsumer, install
from tests.unit.client.scripted_message import Stored

from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.retry.policy import Retry

TOPIC, GROUP = "orders", "billing"
RETRY = f"{TOPIC}.{GROUP}.retry"
DEAD = f"{TOPIC}.{GROUP}.dlq"
SOURCE = (TOPIC, 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make(TOPIC, 1)
    install(broker, monkeypatch.setattr)
    return broker


def raw(broker: Broker) -> RawConsumer:
    assert broker.consumer is not None
    return broker.consumer


def opened(broker: Broker, **options: Any) -> Consumer:
    """A consumer of a group that owns what it reads."""
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), **options)
    own(broker, *(place for place in broker.logs if place[0] in raw(broker).topics))
    return consumer


def own(broker: Broker, *places: tuple[str, int]) -> None:
    raw(broker).queue.append(("assign", list(places)))


def send(broker: Broker, *values: bytes, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
    for value in values:
        broker.append(SOURCE, value, b"k", list(headers))


def value(consumer: Consumer) -> bytes | None:
    message = consumer.receive(0.1)
    return None if message is None else message.value


def values(consumer: Consumer, rounds: int = 20) -> list[bytes]:
    found = (value(consumer) for _ in range(rounds))
    return [payload for payload in found if payload is not None]


def raising(
    call: str, when_done: bool, error: type[BaseException] | BaseException
) -> Callable[[str, bool], None]:
    """Once."""
    left = [error]

    def fault(name: str, done: bool) -> None:
        if left and (name, done) == (call, when_done):
            raise left.pop()

    return fault


def test_an_error_among_messages_is_told_and_they_are_handed_out(broker: Broker) -> None:
    consumer = opened(broker)
    send(broker, b"1", b"2")
    consumer.receive(0.1)
    broken = Stored((TOPIC, 0), wrong=KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))
    raw(broker).queue.append(("error", broken))
    send(broker, b"3")
    with pytest.raises(ClientError, match="no such offset"):
        values(consumer)
    assert values(consumer) == [b"3"]


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("call", ["poll", "consume", "commit"])
def test_who_goes_on_after_an_interruption_misses_nothing(broker: Broker, call: str, done: bool) -> None:
    consumer = opened(broker, commit_every=0)
    send(broker, b"1", b"2", b"3")
    broker.fault = raising(call, done, KeyboardInterrupt)
    seen: list[bytes] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - whichever of the calls it is
        while True:
            message = consumer.receive(0.1)
            seen += [] if message is None else [message.value]
    seen += values(consumer)
    assert seen == [b"1", b"2", b"3"]


def test_a_failure_that_no_topic_took_is_not_committed_until_one_does(broker: Broker) -> None:
    consumer = opened(broker, retry=Retry(attempts=2, backoff="1s"), commit_every=1000)
    broker.refuse = lambda topic: topic == RETRY
    send(broker, b"bad", b"good")
    message = consumer.receive(0.1)
    assert message is not None
    with consumer.handling(message):
        raise ValueError("no")
    for _ in range(3):
        with pytest.raises(ClientError, match="does not take it"):
            consumer.commit()
    assert broker.committed == {}
    broker.refuse = lambda _: False
    consumer.commit()
    assert broker.committed[SOURCE][0] == 1
    assert [log.data for log in broker.logs[RETRY, 0]] == [b"bad"]


def test_dead_letters_are_read_with_retries_of_their_own(broker: Broker) -> None:
    broker.make("orders.old.dlq", 1)
    told = [("penstock-origin", b"orders/0/7"), ("penstock-failures", b"5")]
    broker.append(("orders.old.dlq", 0), b"dead", b"k", told)
    consumer = Consumer("scripted", "orders.old.dlq", group=GROUP, stop_on=(), retry=Retry(attempts=1))
    own(broker, ("orders.old.dlq", 0))
    message = consumer.receive(0.1)
    assert message is not None
    assert message.attempt == 1
    with consumer.handling(message):
        raise ValueError("still")
    consumer.commit()
    assert [log.data for log in broker.logs[f"orders.old.dlq.{GROUP}.dlq", 0]] == [b"dead"]
    assert ("orders.billing.dlq", 0) not in broker.logs


def test_headers_passed_on_by_another_consumer_count_for_nothing(broker: Broker) -> None:
    told = (("penstock-origin", b"elsewhere/0/7"), ("penstock-failures", b"9"), ("trace", b"1"))
    send(broker, b"bad", headers=told)
    consumer = opened(broker, retry=Retry(attempts=2, backoff="1s"))
    message = consumer.receive(0.1)
    assert message is not None
    assert (message.attempt, message.origin) == (1, (TOPIC, 0, 0))
    with consumer.handling(message):
        raise ValueError("no")
    consumer.commit()
    (waiting,) = broker.logs[RETRY, 0]
    headers = dict(waiting.headers())
    assert (headers["penstock-origin"], headers["penstock-failures"]) == (b"orders/0/0", b"1")
    assert headers["trace"] == b"1"


@pytest.mark.parametrize(
    "move", [lambda consumer: consumer.pause(), lambda consumer: consumer.seek(TOPIC, 0, 2)]
)
def test_at_most_once_a_clean_end_gives_back_what_was_not_handed_out(
    broker: Broker, move: Callable[[Consumer], None]
) -> None:
    send(broker, b"0", b"1", b"2", b"3")
    with opened(broker, delivery="at-most-once") as consumer:
        assert value(consumer) == b"0"
        move(consumer)
    assert broker.committed[SOURCE][0] == 1


def test_at_most_once_a_clean_end_gives_back_what_was_paused_after_an_interruption(broker: Broker) -> None:
    consumer = opened(broker, delivery="at-most-once")
    send(broker, b"1", b"2", b"3")
    assert value(consumer) == b"1"
    assert broker.committed[SOURCE][0] == 3
    broker.clock.now += 1  # the group is attended to before the next message
    broker.fault = raising("poll", False, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(0.1)
    consumer.pause()
    assert value(consumer) is None
    consumer.close()
    assert broker.committed[SOURCE][0] == 1


def test_at_most_once_a_batch_is_committed_when_it_is_handed_out(broker: Broker) -> None:
    consumer = opened(broker, delivery="at-most-once", batch_messages=4)
    send(broker, *(b"%d" % number for number in range(20)))
    batches = consumer.batches(size=6, wait=0.1)
    assert [message.offset for message in next(batches)] == [*range(6)]
    assert broker.committed[SOURCE][0] == 6
    assert [message.offset for message in next(batches)] == [*range(6, 12)]
    assert broker.committed[SOURCE][0] == 12
    # What lies ready is committed before it is handed out in any other way, too.
    assert value(consumer) == b"12"
    assert broker.committed[SOURCE][0] > 12
    assert values(consumer) == [b"%d" % number for number in range(13, 20)]


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize(("to", "found"), [(2, 2), (0, 0), ("earliest", 0)])
def test_no_commit_passes_what_is_to_be_read_again(
    broker: Broker, delivery: Any, to: Any, found: int
) -> None:
    send(broker, b"0", b"1", b"2", b"3")
    consumer = opened(broker, delivery=delivery)
    assert [value(consumer) for _ in range(3)] == [b"0", b"1", b"2"]
    consumer.seek(TOPIC, 0, to)  # 2 is in hand
    consumer.pause()
    broker.clock.now += 2
    assert values(consumer) == []
    raw(broker).end_commits()
    consumer.close()
    assert broker.committed[SOURCE][0] == found


def test_what_was_read_again_is_committed_as_ever(broker: Broker) -> None:
    send(broker, b"0", b"1", b"2")
    with opened(broker, commit_every=1000) as consumer:
        assert [value(consumer) for _ in range(2)] == [b"0", b"1"]
        consumer.seek(TOPIC, 0, 1)
        assert values(consumer) == [b"1", b"2"]
    assert broker.committed[SOURCE][0] == 3


@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_a_retry_that_waited_while_its_partition_was_away_is_tried(broker: Broker, how: str) -> None:
    consumer = opened(broker, retry=Retry(attempts=3, backoff="1m"))
    send(broker, b"bad")
    message = consumer.receive(0.1)
    assert message is not None
    with consumer.handling(message):
        raise ValueError("no")
    assert values(consumer) == []
    held = next(place for place in raw(broker).paused)
    raw(broker).queue.append((how, [held]))
    assert values(consumer) == []
    own(broker, held)
    assert values(consumer) == []
    broker.clock.now += 100
    assert values(consumer) == [b"bad"]


@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_a_late_failure_of_an_old_commit_does_not_set_the_next_owner_back(broker: Broker, how: str) -> None:
    consumer = opened(broker)
    send(broker, b"0", b"1", b"2")
    assert value(consumer) == b"0"
    broker.clock.now += 2
    assert values(consumer) == [b"1", b"2"]  # the commit is under way
    raw(broker).queue.append((how, [SOURCE]))
    values(consumer)
    send(broker, *[b"another member's"] * 47)
    broker.commit(SOURCE, 50, "")  # another member's
    own(broker, SOURCE)
    raw(broker).end_commits(KafkaError.REQUEST_TIMED_OUT)
    values(consumer)
    broker.clock.now += 2
    values(consumer)
    raw(broker).end_commits()
    consumer.close()
    assert broker.committed[SOURCE][0] == 50


def test_an_assignment_that_went_wrong_is_told_and_made_good(broker: Broker) -> None:
    send(broker, b"0", b"1")
    broker.unready = True
    consumer = opened(broker, start=1)
    with pytest.raises(ClientError):
        values(consumer)
    broker.unready = False
    assert values(consumer) == [b"1"]


def test_with_ordered_keys_nothing_is_read_apart_from_its_retries(broker: Broker) -> None:
    send(broker, b"0")
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=Retry(ordered_by_key=True))
    own(broker, SOURCE)
    assert values(consumer) == []
    raw(broker).queue.append(("revoke", [SOURCE]))
    own(broker, SOURCE, (RETRY, 0))
    assert values(consumer) == [b"0"]


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_callback_that_raises_an_error_of_kafkas_loses_no_message(broker: Broker, call: str) -> None:
    """`error_cb` that raises KafkaException is what confluent's own examples do."""
    consumer = opened(broker)
    send(broker, b"1", b"2", b"3")
    failed = KafkaError(KafkaError._ALL_BROKERS_DOWN)

    def error_cb(name: str, done: bool) -> None:
        if (name, done) == (call, True):
            broker.fault = lambda _call, _done: None
            raise KafkaException(failed)

    broker.fault = error_cb
    seen: list[bytes] = []
    with pytest.raises(ClientError):  # noqa: PT012 - whichever of the calls it is
        while True:
            seen += values(consumer, 1)
    assert seen + values(consumer) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("start", ["latest", timedelta(0), timedelta(hours=1)])
@pytest.mark.parametrize("group", [GROUP, None])
def test_what_came_since_the_end_was_found_is_read_after_an_interruption(
    broker: Broker, start: Any, group: str | None
) -> None:
    send(broker, b"before")
    consumer = Consumer("scripted", TOPIC, group=group, stop_on=(), start=start)
    if group is not None:
        own(broker, SOURCE)
    assert values(consumer) == []
    send(broker, b"1", b"2")
    broker.fault = raising("poll", True, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(0.1)
    send(broker, b"3")
    assert values(consumer) == [b"1", b"2", b"3"]


def test_what_came_since_a_seek_to_the_end_is_read_after_an_interruption(broker: Broker) -> None:
    consumer = opened(broker)
    assert values(consumer) == []
    send(broker, b"before")
    consumer.seek(TOPIC, 0, "latest")
    send(broker, b"1", b"2")
    broker.fault = raising("poll", True, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(0.1)
    assert values(consumer) == [b"1", b"2"]


def test_a_partition_whose_commit_cannot_be_told_is_not_begun_anew(broker: Broker) -> None:
    send(broker, b"0", b"1")
    broker.commit(SOURCE, 1, "")
    broker.unreadable = True
    consumer = opened(broker, start=0)
    with pytest.raises(ClientError):
        values(consumer)
    broker.unreadable = False
    assert values(consumer) == [b"1"]


def test_leaving_that_fails_does_not_hide_what_the_body_raised(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: RawConsumer) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(RawConsumer, "close", close)
    with pytest.raises(ZeroDivisionError), opened(broker):
        raise ZeroDivisionError
    with pytest.raises(KafkaException), opened(broker):
        pass
