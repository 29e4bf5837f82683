"""Ordered retries while the source is made smaller."""

from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.unit.client.scripted import Broker
from tests.unit.client.scripted_sdk import Admin
from tests.unit.client.test_consumer_scenes import GROUP, RETRY, TOPIC, own, raw, values
from tests.unit.client.test_consumer_scenes import broker as broker  # noqa: PLC0414 - a fixture

from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.retry.policy import Retry
from penstock.client.retry.retiring import _targets

ORDERED = Retry(attempts=3, backoff="60s", ordered_by_key=True)


def opened(broker: Broker, **options: Any) -> Consumer:
    options = {"retry": ORDERED, "commit_every": 1, **options}
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), **options)
    own(broker, *(place for place in broker.logs if place[0] in raw(broker).topics))
    return consumer


def step(broker: Broker, consumer: Consumer) -> list[bytes]:
    found = values(consumer)
    raw(broker).end_commits()
    broker.clock.now += 2
    return found + values(consumer)


def fail(consumer: Consumer) -> None:
    message = consumer.receive(0.1)
    assert message is not None
    with consumer.handling(message):
        raise ValueError("no")


def test_a_key_of_a_retired_partition_does_not_overtake_itself_in_its_target(broker: Broker) -> None:
    broker.make(TOPIC, 2)
    consumer = opened(broker)
    broker.append((TOPIC, 1), b"1", b"k", [])
    fail(consumer)
    broker.configs[TOPIC] = {"penstock.retire.to": "1"}
    broker.clock.now += 2
    assert step(broker, consumer) == []
    broker.append((TOPIC, 0), b"2", b"k", [])  # written to 1, moved
    assert step(broker, consumer) == []
    broker.clock.now += 100
    assert step(broker, consumer) + step(broker, consumer) == [b"1", b"2"]


@pytest.mark.parametrize("call", ["settings_of_topic", "partition_indexes"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_nothing_is_let_go_on_the_word_of_a_broker_that_has_not_heard_of_the_source(
    broker: Broker, call: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make(TOPIC, 2)
    consumer = opened(broker)
    broker.append((TOPIC, 1), b"1", b"k", [])
    fail(consumer)
    broker.configs[TOPIC] = {"penstock.retire.to": "1"}
    broker.clock.now += 2
    assert step(broker, consumer) == []
    broker.append((TOPIC, 0), b"2", b"k", [])  # written to 1, moved
    assert step(broker, consumer) == []
    real = getattr(Admin, call)
    left = [None] * times

    def answer(admin: Admin, topic: str) -> Any:
        if topic == TOPIC and left:
            left.pop()
            raise ClientError(f"there is no topic {topic}", KafkaError.UNKNOWN_TOPIC_OR_PART)
        return real(admin, topic)

    monkeypatch.setattr(Admin, call, answer)
    found = step(broker, consumer) + step(broker, consumer)
    broker.clock.now += 100
    found += step(broker, consumer) + step(broker, consumer)
    assert found == [b"1", b"2"]
    assert not left


def test_what_was_taken_of_the_target_waits_too(broker: Broker) -> None:
    broker.make(TOPIC, 2)
    consumer = opened(broker)
    broker.append((TOPIC, 1), b"1", b"k", [])
    fail(consumer)
    broker.append((TOPIC, 0), b"a", b"other", [])
    broker.append((TOPIC, 0), b"2", b"k", [])
    assert values(consumer, 1) == [b"a"]
    broker.configs[TOPIC] = {"penstock.retire.to": "1"}
    broker.clock.now += 2
    assert step(broker, consumer) == []
    broker.clock.now += 100
    assert step(broker, consumer) + step(broker, consumer) == [b"1", b"2"]


@pytest.mark.parametrize("known", [False, True])
def test_what_waits_for_partitions_that_are_gone_is_read_and_then_the_retry_topic_is_made_smaller(
    broker: Broker, known: bool
) -> None:
    """Also when the group was away while all of it happened."""
    broker.make(RETRY, 3)
    told = [("penstock-failures", b"1"), ("penstock-due", b"0"), ("penstock-origin", b"orders/2/7")]
    broker.append((RETRY, 2), b"1", b"k", told)
    broker.append((TOPIC, 0), b"2", b"k", [])
    if known:
        broker.configs[TOPIC] = {"penstock.retire.to": "1"}
    consumer = opened(broker)
    assert step(broker, consumer) + step(broker, consumer) == [b"1", b"2"]
    assert broker.configs[RETRY]["penstock.retire.to"] == "1"
    assert broker.starts[RETRY, 2] == 1


WAITS = [("penstock-failures", b"1"), ("penstock-due", b"0")]


@pytest.mark.parametrize("worked_off", [False, True])
def test_what_waits_for_another_group_in_the_same_retry_topic_is_kept(
    broker: Broker, worked_off: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Names may hold dots: `orders` read by `eu.billing`, and `orders.eu` read by `billing`."""
    shared = "orders.eu.billing.retry"
    broker.make("orders.eu", 1)
    broker.make(shared, 3)
    broker.append((shared, 1), b"foreign", b"k", [*WAITS, ("penstock-origin", b"orders/1/7")])
    broker.append((shared, 2), b"own", b"k", [*WAITS, ("penstock-origin", b"orders.eu/2/7")])
    if worked_off:
        broker.commit((shared, 1), 1, "")
    consumer = Consumer("scripted", "orders.eu", group=GROUP, stop_on=(), retry=ORDERED, commit_every=1)
    own(broker, *(place for place in broker.logs if place[0] in raw(broker).topics))
    broker.append(("orders.eu", 0), b"1", b"k", [])
    assert step(broker, consumer) + step(broker, consumer) == [b"own", b"1"]
    assert broker.starts == {}
    assert "penstock.retire.to" not in broker.configs.get(shared, {})
    said = [record for record in caplog.records if "messages of another group" in record.getMessage()]
    assert len(said) == 1


def test_at_most_once_what_waits_for_its_next_try_is_not_deleted(broker: Broker) -> None:
    """It was committed before it was tried."""
    broker.make(RETRY, 2)
    broker.append((RETRY, 1), b"1", b"k", [*WAITS, ("penstock-origin", b"orders/1/7")])
    consumer = opened(broker, delivery="at-most-once")
    fail(consumer)
    assert step(broker, consumer) == []
    assert broker.starts == {}
    broker.clock.now += 100
    assert step(broker, consumer) == [b"1"]
    assert step(broker, consumer) == []
    assert broker.starts == {(RETRY, 1): 1}


def test_what_another_member_owns_is_left_to_it(broker: Broker) -> None:
    """At-most-once it has committed what it still works on."""
    broker.make(RETRY, 3)
    for index in (1, 2):
        broker.append((RETRY, index), b"1", b"k", [*WAITS, ("penstock-origin", b"orders/1/7")])
        broker.commit((RETRY, index), 1, "")
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), retry=ORDERED, delivery="at-most-once")
    own(broker, (TOPIC, 0), (RETRY, 0), (RETRY, 1))
    assert step(broker, consumer) == []
    assert broker.configs[RETRY]["penstock.retire.to"] == "1"
    assert broker.starts == {(RETRY, 1): 1}


def test_where_a_retry_topic_cannot_be_made_smaller_it_is_said(broker: Broker) -> None:
    broker.retires = False
    broker.make(RETRY, 4)
    with pytest.raises(ClientError, match=r"orders has 1 partitions and orders\.billing\.retry has more"):
        values(opened(broker))


def test_targets_of_a_partition_are_those_of_every_count_it_may_have_been_retired_to() -> None:
    assert _targets(1, 1) == {0}
    assert _targets(5, 3) == {0, 1, 2}
    assert _targets(5, 4) == {0, 1}
    assert _targets(2, 2) == {0}
