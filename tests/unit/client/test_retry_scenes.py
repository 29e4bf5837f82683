"""Single scenes of retries: what is stored of them, and what becomes of them when partitions go."""

import os
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
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

from penstock.client.consumer import Consumer
from penstock.client.encryption import Encryption, StaticKeys
from penstock.client.errors import ClientError
from penstock.client.retry import Retry

ORDERED = Retry(attempts=3, backoff="1s", ordered_by_key=True)


def fail(consumer: Consumer, what: str = "no") -> None:
    message = consumer.receive(0.1)
    assert message is not None
    with consumer.handling(message):
        raise ValueError(f"{what}: {message.value!r}")


def ordered(broker: Broker, retry: Retry = ORDERED) -> Consumer:
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=retry, commit_every=1000)
    own(broker, SOURCE, (RETRY, 0))
    return consumer


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
    stored = [one for place, log in broker.logs.items() if place[0] in (RETRY, DEAD) for one in log]
    assert [dict(one.headers())["penstock-error"] for one in stored][-1] == b"ValueError"
    assert b"iban" not in b"".join(value for one in stored for _, value in one.headers())
    assert "iban" not in "".join(notes)


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
