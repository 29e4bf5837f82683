"""Ctrl-C at every moment of a pause, and of commits that are refused: who goes on misses none, and at-most-once none
comes twice."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted import Broker, install
from tests.unit.client.test_interrupted_asking import ALL, SOURCE, TOPIC, opened

from penstock.client.consuming.consumer import Consumer
from penstock.client.consuming.unfinished import Where
from penstock.client.message import Message

A, B = ("a", 0), ("b", 0)
_MOMENTS_MAX = 4000


def pause(consumer: Consumer) -> None:
    consumer.pause(TOPIC, 0)


def pause_and_resume(consumer: Consumer) -> None:
    consumer.pause(TOPIC, 0)
    consumer.resume(TOPIC, 0)


def taken(consumer: Consumer, *, batched: bool) -> list[int]:
    if batched:
        return [message.offset for message in consumer.receive_many(3, 0.1)]
    message = consumer.receive(0.1)
    return [] if message is None else [message.offset]


@pytest.mark.parametrize("move", [pause, pause_and_resume])
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("batched", [False, True])
def test_who_pauses(
    move: Callable[[Consumer], None], delivery: str, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(_MOMENTS_MAX):
        broker, consumer = opened(monkeypatch, delivery=delivery, commit_every=1000)
        interruption = Interruption(moment)
        seen = [message.offset for message in consumer.receive_many(2, 0.1)]
        with suppress(KeyboardInterrupt), interruption.armed():
            move(consumer)
        consumer.resume()
        for _ in range(20):
            seen += taken(consumer, batched=batched)
        consumer.close()
        if delivery == "at-least-once":  # it may bring some twice
            seen = list(dict.fromkeys(seen))
        assert seen == ALL, f"moment {moment}"
        assert broker.committed[SOURCE][0] == len(ALL), f"moment {moment}"
        if not interruption.came:
            return
    pytest.fail("it has no end")


class Asking:
    """In one of the ways, anew after an interruption."""

    def __init__(self, consumer: Consumer, form: str) -> None:
        self._consumer = consumer
        self._form = form
        self._batches = consumer.batches(size=3, wait=0)
        self._messages = iter(consumer)

    def next(self, *, first: bool) -> list[Message]:
        if self._form == "batches" or (self._form == "mixed" and first):
            return next(self._batches)
        if self._form == "loop":
            return [next(self._messages)]
        if self._form == "receive_many":
            return self._consumer.receive_many(3, 0.3)
        message = self._consumer.receive(0.3)
        return [] if message is None else [message]


_FORMS = ["batches", "receive", "receive_many", "loop", "mixed"]


@pytest.mark.parametrize("form", _FORMS)
def test_who_is_refused_one_commit(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At-most-once, by a coordinator that hears late of a topic. Each form is interrupted at moments of its own."""
    for moment in range(_FORMS.index(form), _MOMENTS_MAX, len(_FORMS)):
        broker = Broker()
        install(broker, monkeypatch.setattr)
        for place in (A, B):
            broker.make(place[0], 1)
            for _ in range(4):
                broker.append(place, b"x", None, [])
        consumer = Consumer(
            "scripted",
            ["a", "b"],
            group="g",
            stop_on=(),
            delivery="at-most-once",
            commit_every=1000,
            batch_messages=6,
        )
        assert broker.consumer is not None
        broker.consumer.queue.append(("assign", [A, B]))
        broker.unknown.add(A)

        def heard_of(place: Where, unknown: set[Where] = broker.unknown) -> None:
            unknown.discard(place)

        broker.on_refused = heard_of
        seen: list[tuple[str, int]] = []
        interruption = Interruption(moment)
        asking, misses = Asking(consumer, form), 0
        while misses < 12 and len(set(seen)) < 8:
            try:
                with interruption.armed():
                    found = asking.next(first=len(seen) < 2)
            except KeyboardInterrupt:
                asking = Asking(consumer, form)
                continue
            misses = 0 if found else misses + 1
            seen += [(message.topic, message.offset) for message in found]
        consumer.close()
        assert sorted(seen) == [(topic, number) for topic in "ab" for number in range(4)], f"moment {moment}"
        if not interruption.came:
            return
    pytest.fail("it has no end")
