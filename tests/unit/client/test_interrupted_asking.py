"""Ctrl-C at every moment of asking for messages: who leaves has committed none unseen, who goes on misses none."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted import Broker, install

from penstock.client.consuming.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.message import Message

TOPIC, GROUP = "orders", "billing"
SOURCE = (TOPIC, 0)
ALL = list(range(7))
_MOMENTS_MAX = 5000

Ask = Callable[[Consumer], Callable[[], list[Message]]]


def receive(consumer: Consumer) -> Callable[[], list[Message]]:
    def ask() -> list[Message]:
        message = consumer.receive(0.1)
        return [] if message is None else [message]

    return ask


def receive_many(consumer: Consumer) -> Callable[[], list[Message]]:
    return lambda: consumer.receive_many(3, 0.1)


def loop(consumer: Consumer) -> Callable[[], list[Message]]:
    messages = iter(consumer)
    return lambda: [next(messages)]


def batches(consumer: Consumer) -> Callable[[], list[Message]]:
    found = consumer.batches(size=3, wait=0)
    return lambda: next(found)


ASKS: list[Ask] = [receive, receive_many, loop, batches]


def opened(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Broker, Consumer]:
    broker = Broker()
    broker.make(TOPIC, 1)
    install(broker, monkeypatch.setattr)
    for number in ALL:
        broker.append(SOURCE, b"%d" % number, b"k", [])
    consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), batch_messages=5, **options)
    assert broker.consumer is not None
    broker.consumer.queue.append(("assign", [SOURCE]))
    return broker, consumer


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_who_leaves_has_committed_nothing_unseen(
    ask: Ask, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(_MOMENTS_MAX):
        broker, consumer = opened(monkeypatch, delivery=delivery, commit_every=1000)
        seen = [message.offset for message in receive(consumer)()]
        interruption = Interruption(moment)
        with suppress(KeyboardInterrupt), consumer:
            asked = ask(consumer)
            while len(seen) < len(ALL):
                with interruption.armed():
                    found = asked()
                seen += [message.offset for message in found]
        committed = broker.committed.get(SOURCE, (0, ""))[0]
        assert committed <= len(seen), f"moment {moment}: {seen}"
        if not interruption.came:
            return
    pytest.fail("it has no end")


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_who_goes_on_misses_nothing(ask: Ask, delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(_MOMENTS_MAX):
        _, consumer = opened(monkeypatch, delivery=delivery, commit_every=0)
        interruption = Interruption(moment)
        asked = ask(consumer)
        seen: list[int] = []
        while len(seen) < len(ALL):
            try:
                with interruption.armed():
                    found = asked()
            except KeyboardInterrupt:
                asked = ask(consumer)
                continue
            seen += [message.offset for message in found]
        if delivery == "at-least-once":  # it may bring some twice
            seen = list(dict.fromkeys(seen))
        assert seen == ALL, f"moment {moment}"
        if not interruption.came:
            return
    pytest.fail("it has no end")


def test_what_does_not_fit_into_a_table_is_there_for_who_asks_next(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, consumer = opened(monkeypatch, deserializer=lambda data: {"n": 1} if data == b"0" else "text")
    with pytest.raises(ClientError, match="no common Arrow type"):
        next(consumer.tables(size=3, wait=0))
    assert [message.offset for message in batches(consumer)()] == [0, 1, 2]
    consumer.commit()
    assert broker.committed[SOURCE][0] == 3


@pytest.mark.parametrize("ask", [receive_many, batches])
def test_a_body_that_fails_leaves_its_whole_batch_to_the_next(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, consumer = opened(monkeypatch, delivery="at-least-once", commit_every=1000)
    first = receive(consumer)()  # done with the next question
    found: list[Message] = []
    with suppress(ZeroDivisionError), consumer:
        asked = ask(consumer)
        while not found:
            found = asked()
        raise ZeroDivisionError
    assert len(found) > 1
    assert broker.committed.get(SOURCE, (0, ""))[0] == len(first)
