"""Single scenes of where reading begins, and what becomes of that when partitions move, grow or are cut short."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.client.scripted import Broker
from tests.unit.client.test_consumer_scenes import GROUP, RETRY, SOURCE, TOPIC, own, raw, send, values
from tests.unit.client.test_consumer_scenes import broker as broker  # noqa: PLC0414 - a fixture

from penstock.client.consuming.consumer import Consumer
from penstock.client.retry.policy import Retry

MOVING = pytest.mark.parametrize("start", ["latest", timedelta(0)])
# Behind the first message, by its number and by its time.
LATE = pytest.mark.parametrize("start", ["latest", timedelta(0), 1, datetime(1970, 1, 2, tzinfo=UTC)])
SEMANTICS = pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
NEW = (TOPIC, 1)


def opened(broker: Broker, start: Any, topics: str = TOPIC, **options: Any) -> Consumer:
    consumer = Consumer("scripted", topics, group=GROUP, stop_on=(), start=start, **options)
    own(broker, *(place for place in broker.logs if place[0] == TOPIC))
    return consumer


@MOVING
@SEMANTICS
@pytest.mark.parametrize("how", ["revoke", "lost"])
def test_a_partition_that_moves_before_its_first_commit_goes_on_where_it_began(
    broker: Broker, start: Any, delivery: Any, how: str
) -> None:
    send(broker, b"before")
    consumer = opened(broker, start, delivery=delivery)
    assert values(consumer) == []
    raw(broker).queue.append((how, [SOURCE]))
    values(consumer)
    send(broker, b"meanwhile")
    assert values(opened(broker, start, delivery=delivery)) == [b"meanwhile"]


@LATE
@pytest.mark.parametrize("restarted", [False, True])
def test_a_partition_that_was_added_since_the_group_began_is_read_from_its_first_message(
    broker: Broker, start: Any, restarted: bool
) -> None:
    send(broker, b"before")
    consumer = opened(broker, start, commit_every=0)
    send(broker, b"1")
    broker.make(TOPIC, 2)
    broker.append(NEW, b"2", b"k", [])
    if restarted:
        values(consumer)
        consumer.close()
        consumer = opened(broker, start, commit_every=0)
        assert values(consumer) == [b"2"]
    else:
        own(broker, NEW)
        assert values(consumer)[-1] == b"2"


@SEMANTICS
@pytest.mark.parametrize("group", [GROUP, None])
@pytest.mark.parametrize("start", [timedelta(days=40_000), datetime(1970, 1, 1, tzinfo=UTC)])
def test_what_comes_while_it_is_asked_for_a_time_is_read(
    broker: Broker, start: Any, group: str | None, delivery: Any
) -> None:
    """Nothing was that late when it asked, and then it was told of the end."""

    def written() -> None:
        if not broker.logs[SOURCE]:
            send(broker, b"now")

    broker.on_offsets = written
    consumer = Consumer("scripted", TOPIC, group=group, stop_on=(), start=start, delivery=delivery)
    if group is not None:
        own(broker, SOURCE)
    assert values(consumer) == [b"now"]


def test_partitions_that_are_named_begin_where_they_are_told_and_the_others_at_the_first(
    broker: Broker,
) -> None:
    send(broker, b"before", b"1")
    consumer = opened(broker, {0: 1, 1: 1})
    assert values(consumer) == [b"1"]
    consumer.commit()
    broker.make(TOPIC, 3)
    for value in (b"2", b"3"):
        broker.append(NEW, value, b"k", [])
        broker.append((TOPIC, 2), value, b"k", [])
    own(broker, NEW, (TOPIC, 2))
    assert sorted(values(consumer)) == [b"2", b"3", b"3"]


def test_a_group_that_begins_behind_the_growth_begins_at_the_end_of_all(broker: Broker) -> None:
    broker.make(TOPIC, 2)
    broker.append(NEW, b"before", b"k", [])
    assert values(opened(broker, "latest")) == []


def test_where_retention_overtook_a_retry_partition_the_rest_is_read(broker: Broker) -> None:
    retry = Retry(attempts=2, backoff="10s")
    consumer = opened(broker, "latest", retry=retry)
    own(broker, (RETRY, 0))
    values(consumer)
    for number in range(3):
        send(broker, b"%d" % number)
        message = consumer.receive(0.1)
        assert message is not None
        with consumer.handling(message):
            raise ValueError("no")
    assert values(consumer) == []
    broker.starts[RETRY, 0] = 1
    broker.clock.now += 100
    assert values(consumer) == [b"1", b"2"]


@pytest.mark.parametrize("start", ["latest", timedelta(0), 1])
def test_a_subscription_by_pattern_begins_where_it_was_told(broker: Broker, start: Any) -> None:
    send(broker, b"before")
    consumer = opened(broker, start, topics="^ord.*")
    assert values(consumer) == []
    send(broker, b"1")
    assert values(consumer) == [b"1"]


@pytest.mark.parametrize("start", ["earliest", "latest", timedelta(0)])
def test_without_a_group_partitions_that_are_added_are_read(broker: Broker, start: Any) -> None:
    consumer = Consumer("scripted", TOPIC, stop_on=(), start=start)
    assert values(consumer) == []
    broker.make(TOPIC, 2)
    broker.append(NEW, b"new", b"k", [])
    broker.clock.now += 60
    assert values(consumer) == [b"new"]
    assert consumer.assignment == [SOURCE, NEW]


# Where each partition begins is known by numbers: those are kept as an end or a time is.
BY_NUMBER = pytest.mark.parametrize("start", [{0: 0}, {0: 0, 1: 0}, 0, "earliest"])


@BY_NUMBER
@pytest.mark.parametrize("added", [False, True])
def test_whoever_goes_on_at_the_end_passes_over_no_partition_that_the_group_never_got_to(
    broker: Broker, start: Any, added: bool
) -> None:
    send(broker, b"0", b"1")
    if not added:
        broker.make(TOPIC, 2)
    consumer = opened(broker, start, commit_every=0)
    assert values(consumer)
    consumer.close()
    if added:
        broker.make(TOPIC, 2)
    broker.append(NEW, b"new", b"k", [])
    assert values(opened(broker, "latest")) == [b"new"]


def test_a_member_that_begins_by_numbers_keeps_a_group_from_passing_over_what_is_added(
    broker: Broker,
) -> None:
    send(broker, b"before")
    consumer = opened(broker, "latest", commit_every=0)
    assert values(consumer) == []
    consumer.close()
    send(broker, b"1")
    consumer = opened(broker, {0: 0}, commit_every=0)
    assert values(consumer) == [b"1"]
    consumer.close()
    broker.make(TOPIC, 2)
    broker.append(NEW, b"new", b"k", [])
    assert values(opened(broker, "latest")) == [b"new"]


@pytest.mark.parametrize("start", ["earliest", {0: 0, 1: 0}, 0])
def test_a_partition_whose_first_member_died_before_it_began_is_read_from_the_first(
    broker: Broker, start: Any
) -> None:
    broker.make(TOPIC, 2)
    send(broker, b"0")
    broker.append(NEW, b"1", b"k", [])
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), start=start, commit_every=0)
    own(broker, SOURCE)
    assert values(consumer) == [b"0"]
    consumer.close()
    assert values(opened(broker, "latest")) == [b"1"]


@pytest.mark.parametrize("start", [5, {0: 0, 1: 5}])
def test_an_offset_behind_the_end_is_not_where_the_group_begins(broker: Broker, start: Any) -> None:
    """Reading begins at the first message then, whoever reads."""
    broker.make(TOPIC, 2)
    send(broker, *(b"%d" % number for number in range(7)))
    broker.append(NEW, b"a0", b"k", [])
    consumer = opened(broker, start, commit_every=0)
    assert consumer.receive(timeout=0.1) is not None
    assert broker.committed.get(NEW) is None
    raw(broker).queue.append(("lost", [SOURCE, NEW]))
    for number in range(1, 8):
        broker.append(NEW, b"a%d" % number, b"k", [])
    assert set(values(opened(broker, "earliest"))) >= {b"a%d" % number for number in range(8)}
