"""Single scenes of retries: what is stored of them, and what becomes of them when partitions go."""

import json
import os
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.raising import SLIPS
from tests.unit.client.scripted import Broker
from tests.unit.client.test_consumer_scenes import (
    DEAD,
    GROUP,
    RETRY,
    SOURCE,
    TOPIC,
    own,
    raising,
    raw,
    send,
    values,
)
from tests.unit.client.test_consumer_scenes import broker as broker  # noqa: PLC0414 - a fixture

from penstock.client.consuming.consumer import Consumer
from penstock.client.encryption import Encryption, StaticKeys
from penstock.client.errors import ClientError
from penstock.client.retry.policy import Retry

ORDERED = Retry(attempts=3, backoff="1s", ordered_by_key=True)
KEPT = {"retention.ms": "-1", "max.message.bytes": "2000000"}


def fail(consumer: Consumer, what: str = "no") -> None:
    message = consumer.receive(0.1)
    assert message is not None
    with consumer.handling(message):
        raise ValueError(f"{what}: {message.value!r}")


def stored_in(broker: Broker, topic: str) -> list[bytes | None]:
    return [message.value() for place, log in broker.logs.items() if place[0] == topic for message in log]


def ordered(broker: Broker, retry: Retry = ORDERED) -> Consumer:
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, commit_every=1000)
    own(broker, SOURCE, (RETRY, 0))
    return consumer


@pytest.mark.parametrize("by_key", [False, True])
def test_at_most_once_what_was_refused_is_sent_once_more_at_the_end(broker: Broker, by_key: bool) -> None:
    """It was committed before: nobody else will send it."""
    send(broker, b"m1")
    retry = Retry(attempts=3, backoff="1s", ordered_by_key=by_key)
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, delivery="at-most-once")
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    broker.refuse = lambda topic: topic == RETRY
    fail(consumer)
    broker.refuse = lambda _: False
    consumer.close()
    assert stored_in(broker, RETRY) == [b"m1"]


def test_it_is_also_where_nothing_can_be_committed_at_the_end(broker: Broker) -> None:
    """The second message goes back to its partition, and that commit fails."""
    send(broker, b"m1", b"m2")
    retry = Retry(attempts=3, backoff="1s")
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, delivery="at-most-once")
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    broker.refuse = lambda topic: topic == RETRY
    fail(consumer)
    broker.refuse = lambda _: False
    broker.fault = raising("commit", False, KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT)))
    with pytest.raises(ClientError):
        consumer.close()
    assert stored_in(broker, RETRY) == [b"m1"]


def test_at_most_once_what_was_refused_is_told_and_sent_again_also_with_nothing_new_to_read(
    broker: Broker,
) -> None:
    send(broker, b"m1")
    retry = Retry(attempts=3, backoff="1s")
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, delivery="at-most-once")
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    broker.refuse = lambda topic: topic == RETRY
    fail(consumer)
    broker.refuse = lambda _: False
    broker.clock.now += 2
    with pytest.raises(ClientError, match="does not take it"):
        consumer.receive(0.1)
    broker.clock.now += 2
    assert values(consumer, 2) == [b"m1"]


@pytest.mark.parametrize("by_key", [False, True])
def test_with_encryption_nothing_of_a_value_is_written_with_its_failure(broker: Broker, by_key: bool) -> None:
    encryption = Encryption(StaticKeys({"1": os.urandom(32)}))
    sealed, (name, key_id) = encryption.seal(TOPIC, b"k", b"my iban")
    send(broker, sealed, headers=((name, key_id.encode()),))
    retry = Retry(attempts=3, backoff="1s", ordered_by_key=by_key)
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, encryption=encryption)
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    notes = []
    for _ in range(3):
        fail(consumer)
        consumer.commit()
        notes += [note for _, note in broker.committed.values()]
        broker.clock.now += 100
    stored = [message for place, log in broker.logs.items() if place[0] in (RETRY, DEAD) for message in log]
    assert [dict(message.headers())["penstock-error"] for message in stored][-1] == b"ValueError"
    assert b"iban" not in b"".join(value for message in stored for _, value in message.headers())
    assert "iban" not in "".join(notes)


def test_nor_is_it_logged_with_a_message_that_is_dropped(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    encryption = Encryption(StaticKeys({"1": os.urandom(32)}))
    sealed, (name, key_id) = encryption.seal(TOPIC, b"k", b"my iban")
    send(broker, sealed, headers=((name, key_id.encode()),))
    retry = Retry(attempts=1, dead_letter=False)
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, encryption=encryption)
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    fail(consumer)
    assert "dropped" in caplog.text
    assert "ValueError" in caplog.text
    assert "iban" not in caplog.text


@pytest.mark.parametrize("error", SLIPS, ids=range(len(SLIPS)))
@pytest.mark.parametrize("by_key", [False, True])
def test_whatever_an_error_says_its_message_is_tried_again_and_ends(
    broker: Broker, by_key: bool, error: Exception
) -> None:
    send(broker, b"m1")
    retry = Retry(attempts=6, backoff="1s", ordered_by_key=by_key)
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry)
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    for _ in range(6):
        message = consumer.receive(0.1)
        assert message is not None
        with consumer.handling(message):
            raise error
        consumer.commit()
        broker.clock.now += 100
    (dead,) = broker.logs[DEAD, 0]
    history = json.loads(dict(dead.headers())["penstock-history"])
    assert len(history) == 6
    assert type(error).__name__ in history[0]["error"]


def test_a_message_whose_headers_are_not_text_is_tried_again_and_ends(broker: Broker) -> None:
    send(broker, b"m1", b"m2", headers=((b"\xff", b"x"),))  # type: ignore[arg-type]
    retry = Retry(attempts=2, backoff="1s")
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry)
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    for _ in range(4):
        fail(consumer)
        consumer.commit()
        broker.clock.now += 100
    assert [dead.value() for dead in broker.logs[DEAD, 0]] == [b"m1", b"m2"]


@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_a_refused_retry_is_not_sent_once_its_partition_is_another_members(broker: Broker, how: str) -> None:
    consumer = ordered(broker)
    broker.refuse = lambda topic: topic == RETRY
    send(broker, b"m1")
    fail(consumer)
    raw(broker).queue.append((how, [SOURCE, (RETRY, 0)]))
    with pytest.raises(ClientError, match="does not take it") if how == "revoke" else nullcontext():
        values(consumer)
    assert SOURCE not in broker.committed
    # Its next owner has worked on m1 and what follows; this one gets another partition meanwhile.
    broker.refuse = lambda _: False
    broker.make(TOPIC, 2)
    broker.make(RETRY, 2)
    own(broker, (TOPIC, 1), (RETRY, 1))
    broker.append((TOPIC, 1), b"other", b"z", [])
    assert values(consumer) == [b"other"]
    consumer.commit()
    assert broker.logs[RETRY, 0] == []


def test_a_retry_partition_that_cannot_be_read_is_told_and_read_later(broker: Broker) -> None:
    consumer = ordered(broker)
    send(broker, b"m1", b"m2")
    fail(consumer)
    consumer.commit()
    consumer.close()
    broker.silent = True
    again = ordered(broker)
    with pytest.raises(ClientError, match="which keys wait there could not be read"):
        values(again)
    broker.silent = False
    broker.clock.now += 100
    assert values(again) == [b"m1", b"m2"]


@pytest.mark.parametrize("how", ["taken over", "set back"])
def test_a_clock_that_was_ahead_stops_no_key_for_longer_than_the_longest_wait(
    broker: Broker, how: str
) -> None:
    patient = Retry(attempts=3, backoff="60s", ordered_by_key=True)
    consumer = ordered(broker, patient)
    send(broker, b"m1", b"m2")
    ten_days, now = 10 * 86_400, broker.clock.time_ns
    broker.clock.time_ns = lambda: now() + ten_days * 10**9  # type: ignore[method-assign]
    fail(consumer)
    assert values(consumer) == [], "m2 waits behind it"
    broker.clock.now += 60
    fail(consumer)
    consumer.commit()
    broker.clock.time_ns = now  # type: ignore[method-assign]
    if how == "taken over":
        consumer.close()
        consumer = ordered(broker, patient)
    assert values(consumer) == [], "it waits"
    found = []
    for _ in range(4):  # each as long as it should, and once more as nobody knows since when
        broker.clock.now += 60
        found += values(consumer)
    assert found == [b"m1", b"m2"]


@pytest.mark.parametrize("start", ["latest", 1000, timedelta(0)])
def test_what_waits_for_its_retry_is_read_wherever_the_source_begins(broker: Broker, start: Any) -> None:
    def opened() -> Consumer:
        retry = Retry(attempts=3, backoff="1s")
        consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, start=start)
        own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
        return consumer

    consumer = opened()
    values(consumer)
    consumer.seek(TOPIC, 0, 0)
    send(broker, b"bad")
    fail(consumer)
    consumer.commit()  # and it dies before it has read its retries
    again = opened()
    broker.clock.now += 100
    assert values(again) == [b"bad"]


def test_a_key_whose_retry_was_refused_waits_also_after_an_interruption(broker: Broker) -> None:
    """What waits is read from the retry partition anew then, and it is not there yet."""
    consumer = ordered(broker)
    broker.refuse = lambda topic: topic == RETRY
    send(broker, b"m1")
    fail(consumer)
    send(broker, b"m2")
    broker.fault = raising("poll", True, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        values(consumer)
    with pytest.raises(ClientError, match="does not take it"):
        consumer.receive(0.1)
    broker.refuse = lambda _: False
    broker.clock.now += 100
    assert values(consumer) == [b"m1", b"m2"]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_key_whose_dead_letter_was_refused_waits(broker: Broker, attempts: int) -> None:
    """Until it is there, the message comes again should this member die: it has not ended."""
    consumer = ordered(broker, Retry(attempts=attempts, backoff="1s", ordered_by_key=True))
    send(broker, b"m1", b"m2")
    for _ in range(attempts - 1):
        fail(consumer)
        broker.clock.now += 100
    broker.refuse = lambda topic: topic == DEAD
    fail(consumer)
    for _ in range(3):
        with pytest.raises(ClientError, match="does not take it"):
            values(consumer)
    broker.append(SOURCE, b"other", b"another key", [])
    broker.refuse = lambda _: False
    assert sorted(values(consumer)) == [b"m2", b"other"]
    assert [log.data for log in broker.logs[DEAD, 0]] == [b"m1"]


def test_a_message_whose_dead_letter_could_not_be_sent_at_once_has_ended(broker: Broker) -> None:
    """It goes with the next commit; its partition must not wait for ever."""
    consumer = ordered(broker, Retry(attempts=2, backoff="1s", ordered_by_key=True))
    send(broker, b"m1")
    fail(consumer)
    broker.clock.now += 100
    message = consumer.receive(0.1)
    assert message is not None
    broker.fault = raising("partitions", False, KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    with pytest.raises(ClientError), consumer.handling(message):
        raise ValueError("no")
    send(broker, b"m2")
    assert values(consumer) == [b"m2"]
    consumer.close()
    assert broker.committed[RETRY, 0][0] == 1
    assert [log.data for log in broker.logs[DEAD, 0]] == [b"m1"]


@pytest.mark.parametrize("by_key", [False, True])
def test_a_message_knows_which_try_it_is(broker: Broker, by_key: bool) -> None:
    retry = Retry(attempts=4, backoff="1s", ordered_by_key=by_key)
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry)
    own(broker, *(place for place in broker.logs if place[0] in (TOPIC, RETRY)))
    send(broker, b"m1")
    told = []
    for _ in range(4):
        message = consumer.receive(1)
        assert message is not None
        told.append(message.attempt)
        with consumer.handling(message):
            raise ValueError("no")
        broker.clock.now += 100
    assert told == [1, 2, 3, 4]


@pytest.mark.parametrize("by_key", [False, True])
def test_what_waits_is_kept_for_ever_and_what_the_source_takes_fits(broker: Broker, by_key: bool) -> None:
    broker.configs[TOPIC] = {"max.message.bytes": "5000000"}
    Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=Retry(backoff="30d", ordered_by_key=by_key))
    for name in (RETRY, DEAD):
        made = broker.configs[name]
        assert (made["retention.ms"], made["retention.bytes"], made["cleanup.policy"]) == (
            "-1",
            "-1",
            "delete",
        )
        assert int(made["max.message.bytes"]) > 5_000_000 + 60_000


@pytest.mark.parametrize(
    ("source", "found", "told"),
    [
        ({}, {"retention.ms": "-1", "max.message.bytes": "2000000"}, []),
        ({}, {"max.message.bytes": "2000000"}, []),
        ({}, {"retention.ms": "1000", "max.message.bytes": "2000000"}, ["retention.ms=1000"]),
        ({"retention.ms": "-1"}, {"max.message.bytes": "2000000"}, ["retention.ms=604800000"]),
        (
            {"retention.ms": "1000"},
            {"retention.ms": "5000", "max.message.bytes": "2000000"},
            ["retention.ms=5000"],
        ),
        ({"max.message.bytes": "5000000"}, {"retention.ms": "-1"}, ["max.message.bytes=1048588"]),
        ({}, KEPT | {"retention.bytes": "1000"}, ["retention.bytes=1000"]),
        ({"retention.bytes": "1000"}, KEPT | {"retention.bytes": "2000"}, []),
        ({}, KEPT | {"cleanup.policy": "compact"}, ["cleanup.policy=compact"]),
    ],
)
def test_a_retry_topic_that_keeps_or_takes_too_little_is_told(
    broker: Broker, caplog: pytest.LogCaptureFixture, source: Any, found: Any, told: list[str]
) -> None:
    broker.make(RETRY, 4)
    broker.configs |= {TOPIC: source, RETRY: found}
    retry = Retry(attempts=2, backoff="5s", dead_letter=False)
    Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(told)
    assert all(f"{RETRY} has {setting}" in text for setting, text in zip(told, said, strict=True))


@pytest.mark.parametrize(("by_key", "batches"), [(False, False), (False, True), (True, False)])
def test_a_retry_of_another_topic_in_the_same_retry_topic_is_not_handed_out(
    broker: Broker, by_key: bool, batches: bool
) -> None:
    """Names may hold dots: `orders` read by `eu.billing`, and `orders.eu` read by `billing`."""
    broker.make("orders.eu", 1)
    shared = "orders.eu.billing.retry"
    broker.make(shared, 1)
    told = [("penstock-failures", b"1"), ("penstock-due", b"0")]
    broker.append((shared, 0), b"foreign", b"k", [("penstock-origin", b"orders/0/7"), *told])
    broker.append((shared, 0), b"own", b"k", [("penstock-origin", b"orders.eu/0/7"), *told])
    broker.append((shared, 0), b"foreign", b"k2", [("penstock-origin", b"orders/0/7"), *told])
    retry = Retry(attempts=2, backoff="1s", ordered_by_key=by_key)
    consumer = Consumer("scripted", "orders.eu", group="billing", stop_on=(), retry=retry)
    own(broker, ("orders.eu", 0), (shared, 0))
    broker.append(("orders.eu", 0), b"of a key that waits elsewhere", b"k2", [])
    many = (message.value for _ in range(9) for message in consumer.receive_many(9, 0.1))
    found = list(many) if batches else values(consumer)
    assert sorted(found) == [b"of a key that waits elsewhere", b"own"]
