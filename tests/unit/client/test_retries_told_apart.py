"""Whose retries a message has: what others wrote, what was stored twice, what was a dead letter before."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.scripted import Broker, RawConsumer, install
from tests.unit.client.scripted_sdk import Delivery

from penstock.client.consuming.consumer import Consumer
from penstock.client.encryption import Encryption, StaticKeys
from penstock.client.errors import ClientError
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.policy import Retry

TOPIC, GROUP = "orders", "billing"
RETRY = f"{TOPIC}.{GROUP}.retry"
SOURCE = (TOPIC, 0)
DEAD = "orders.old.dlq"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make(TOPIC, 1)
    broker.make(DEAD, 1)
    install(broker, monkeypatch.setattr)
    return broker


def opened(broker: Broker, topic: str = TOPIC, **options: Any) -> Consumer:
    """A consumer of a group that owns what it reads."""
    consumer = Consumer("scripted", topic, group=GROUP, stop_on=(), **options)
    raw = broker.consumer
    assert isinstance(raw, RawConsumer)
    raw.queue.append(("assign", [place for place in broker.logs if place[0] in raw.topics]))
    return consumer


def work(consumer: Consumer, *failing: bytes, rounds: int = 20) -> list[tuple[bytes, int]]:
    """What is handed out, and at which try; the first try of some fails."""
    seen: list[tuple[bytes, int]] = []
    for _ in range(rounds):
        message = consumer.receive(0.5)
        if message is None:
            continue
        seen.append((message.value, message.attempt))
        with consumer.handling(message):
            if message.attempt == 1 and message.value in failing:
                raise ValueError("no")
    return seen


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dead_letter_that_fails_is_tried_again(broker: Broker, ordered: bool) -> None:
    """It says that it came from `orders`; its retries are those of the topic it was read in."""
    told = [("penstock-origin", b"orders/0/7"), ("penstock-failures", b"5"), ("penstock-error", b"Boom")]
    broker.append((DEAD, 0), b"dead", b"k", told)
    consumer = opened(broker, DEAD, retry=Retry(attempts=2, backoff="1s", ordered_by_key=ordered))
    assert work(consumer, b"dead") == [(b"dead", 1), (b"dead", 2)]


def test_a_sealed_dead_letter_opens_wherever_it_waits(broker: Broker) -> None:
    """It was sealed for the topic that it was first sent to; replayed, it is the dead letter that it was."""
    encryption = Encryption(StaticKeys({"k": bytes(32)}))
    sealed, key_header = encryption.seal(TOPIC, b"k", b"secret")
    told = [key_header, ("penstock-origin", b"orders/0/7"), ("penstock-failures", b"5")]
    broker.append((DEAD, 0), sealed, b"k", told)
    consumer = opened(broker, DEAD, retry=Retry(attempts=3, backoff="1s"), encryption=encryption)
    assert work(consumer, b"secret") == [(b"secret", 1), (b"secret", 2)]
    waited = [message for place, log in broker.logs.items() if place[0].endswith(".retry") for message in log]
    assert [retry_headers.origin(message.headers()) for message in waited] == [(DEAD, 0, 0)]
    assert retry_headers.without_ours(waited[0].headers()) == list(broker.logs[DEAD, 0][0].told)


def test_a_failure_that_was_stored_twice_does_not_free_its_key(broker: Broker) -> None:
    """The answer to the first was lost, so it was sent again: those behind it wait for their own turn."""
    consumer = opened(broker, retry=Retry(attempts=2, backoff="1s", ordered_by_key=True), commit_every=0)
    broker.forget_answer = [RETRY]
    for value in (b"1", b"2"):
        broker.append(SOURCE, value, b"k", [])
    seen = work(consumer, b"1", rounds=1)
    with pytest.raises(ClientError, match="did not answer"):
        consumer.receive(0.5)
    seen += work(consumer, rounds=1)
    assert [log.data for log in broker.logs[RETRY, 0]] == [b"1", b"1", b"2"]
    while (b"2", 1) not in seen:
        seen += work(consumer, b"2", rounds=1)
    broker.append(SOURCE, b"3", b"k", [])
    seen += work(consumer)
    assert [attempt for attempt in seen if attempt[0] != b"1"] == [(b"2", 1), (b"2", 2), (b"3", 1)]


@pytest.mark.parametrize(
    "told",
    [
        ("penstock-due", b"9" * 5000),
        ("penstock-due", b"9" * 15),
        ("penstock-failures", b"9" * 5000),
        ("penstock-origin", b"orders/0/" + b"9" * 5000),
        ("penstock-history", b"[" * 100_000),
    ],
    ids=["due", "never due", "failures", "origin", "history"],
)
def test_what_others_write_into_a_retry_topic_stops_nobody(broker: Broker, told: tuple[str, bytes]) -> None:
    consumer = opened(broker, retry=Retry(attempts=3, backoff="1s"))
    broker.append((RETRY, 0), b"odd", b"k", [("penstock-origin", b"orders/0/0"), told])
    broker.append((RETRY, 0), b"even", b"k", [])
    seen = {value for value, _ in work(consumer, b"odd")}
    assert seen == {b"odd", b"even"}


def test_at_most_once_what_no_topic_takes_holds_up_nothing_that_goes_back(broker: Broker) -> None:
    consumer = opened(broker, delivery="at-most-once", retry=Retry(attempts=2, backoff="1s"))
    for value in (b"bad", b"2", b"3"):
        broker.append(SOURCE, value, b"k", [])
    broker.refuse = lambda topic: topic == RETRY
    assert work(consumer, b"bad", rounds=1) == [(b"bad", 1)]
    with pytest.raises(ClientError, match="does not take it"):
        consumer.close()
    assert broker.committed[SOURCE][0] == 1


def test_at_most_once_what_no_topic_took_is_told_at_the_end(broker: Broker) -> None:
    consumer = opened(broker, delivery="at-most-once", retry=Retry(attempts=2, backoff="1s"))
    broker.append(SOURCE, b"bad", b"k", [])
    broker.refuse = lambda topic: topic == RETRY
    assert work(consumer, b"bad", rounds=1) == [(b"bad", 1)]
    with pytest.raises(ClientError, match="does not take it"):
        consumer.close()


def test_at_most_once_a_failed_message_has_arrived_before_its_partition_goes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner looks which keys wait: it would hand out a later message of the key before it."""
    waited_in: list[str] = []
    honest = Delivery.exception

    def waited(delivery: Delivery) -> ClientError | None:
        assert broker.consumer is not None
        waited_in.append(broker.consumer.rebalancing)
        return honest(delivery)

    monkeypatch.setattr(Delivery, "exception", waited)
    consumer = opened(
        broker, delivery="at-most-once", retry=Retry(attempts=2, backoff="1s", ordered_by_key=True)
    )
    broker.append(SOURCE, b"bad", b"k", [])
    assert work(consumer, b"bad", rounds=1) == [(b"bad", 1)]
    assert broker.consumer is not None
    broker.consumer.queue.append(("revoke", [SOURCE, (RETRY, 0)]))
    assert consumer.receive(0.1) is None
    assert waited_in == ["revoke"]


def test_at_most_once_what_no_topic_takes_holds_up_no_rebalance(broker: Broker) -> None:
    consumer = opened(broker, delivery="at-most-once", retry=Retry(attempts=2, backoff="1s"))
    for value in (b"bad", b"2", b"3"):
        broker.append(SOURCE, value, b"k", [])
    broker.refuse = lambda topic: topic == RETRY
    assert work(consumer, b"bad", rounds=1) == [(b"bad", 1)]
    assert broker.consumer is not None
    broker.consumer.queue.append(("revoke", [SOURCE]))
    broker.clock.sleep(1.0)  # the group is attended to between two messages
    with pytest.raises(ClientError, match="does not take it"):
        consumer.receive(0.1)
    assert broker.committed[SOURCE][0] == 1


def test_at_most_once_a_failed_message_has_arrived_also_where_the_commit_fails(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = opened(
        broker, delivery="at-most-once", retry=Retry(attempts=2, backoff="1s", ordered_by_key=True)
    )
    raw = broker.consumer
    assert raw is not None
    for value in (b"bad", b"2"):
        broker.append(SOURCE, value, value, [])
    assert work(consumer, b"bad", rounds=1) == [(b"bad", 1)]
    waited_in: list[str] = []
    honest = Delivery.exception

    def waited(delivery: Delivery) -> ClientError | None:
        waited_in.append(raw.rebalancing)
        return honest(delivery)

    def fault(call: str, _done: bool) -> None:
        if call == "commit" and raw.rebalancing:
            raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))

    monkeypatch.setattr(Delivery, "exception", waited)
    broker.fault = fault
    raw.queue.append(("revoke", [SOURCE, (RETRY, 0)]))
    broker.clock.sleep(1.0)  # the group is attended to between two messages
    with pytest.raises(ClientError, match="timed out"):
        consumer.receive(0.1)
    assert waited_in == ["revoke"]
