"""The AsyncConsumer over a scripted broker: seeded stories, and planted bugs that they must find."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Literal

import pytest
from tests.unit.client.async_story import AsyncStory
from tests.unit.client.consumer_checks import Violation
from tests.unit.client.scripted import Broker, install

from penstock.client.aio import AsyncConsumer
from penstock.client.consuming.bodies import Bodies
from penstock.client.consuming.consumer import Consumer
from penstock.client.message import Message

SEEDS = int(os.environ.get("PENSTOCK_SDK_SEEDS", "60"))
Semantics = Literal["at-least-once", "at-most-once"]


def tell(seed: int, delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    install(broker, monkeypatch.setattr)
    story = AsyncStory(seed, broker, delivery)
    monkeypatch.setattr("penstock.client.aio.ThreadPoolExecutor", story.thread)
    asyncio.run(story.tell())


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_every_story_keeps_the_promises(delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        try:
            tell(seed, delivery, monkeypatch)
        except Violation as error:
            raise AssertionError(f"seed {seed}, {delivery}: {error}") from error


Plant = Callable[[pytest.MonkeyPatch], None]


def open_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncConsumer, "_abandon", lambda _: None)


def pass_on_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncConsumer, "handling", lambda self, message: self._open.handling(message))


def leave_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consumer, "_settle", lambda _: None)
    monkeypatch.setattr(Bodies, "leave", lambda _: None)


def let_the_thread_hand_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(consumer: AsyncConsumer) -> AsyncIterator[Message]:
        def work() -> Message | None:
            consumer._open.steps.take(0.2)
            return consumer._open.steps.next_taken()

        while True:
            message = await consumer._call(work)
            if message is not None:
                yield message

    monkeypatch.setattr(AsyncConsumer, "__aiter__", careless)


def hand_out_while_the_thread_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(consumer: AsyncConsumer) -> AsyncIterator[Message]:
        steps = consumer._open.steps
        while True:
            message = None if steps.busy else steps.next_taken()
            if message is not None:
                yield message
            else:
                await consumer._call(steps.take, 0.2)

    monkeypatch.setattr(AsyncConsumer, "__aiter__", careless)


def leave_when_the_thread_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(consumer: AsyncConsumer, kind: type[BaseException] | None) -> None:
        await consumer._call(consumer._open.__exit__, kind, None, None)

    monkeypatch.setattr(AsyncConsumer, "_leave", careless)


def count_what_is_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AsyncConsumer._leave
    monkeypatch.setattr(AsyncConsumer, "_leave", lambda consumer, _: honest(consumer, None))


PLANTED: list[tuple[Plant, Semantics]] = [
    (open_for_nobody, "at-least-once"),
    (pass_on_in_the_event_loop, "at-least-once"),
    (leave_what_failed, "at-least-once"),
    (let_the_thread_hand_out, "at-least-once"),
    (let_the_thread_hand_out, "at-most-once"),
    (hand_out_while_the_thread_is_at_work, "at-least-once"),
    (leave_when_the_thread_is_at_rest, "at-least-once"),
    (count_what_is_in_hand, "at-least-once"),
]


@pytest.mark.parametrize(("plant", "delivery"), PLANTED)
def test_a_planted_bug_is_found(plant: Plant, delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(2 * SEEDS):
        try:
            tell(seed, delivery, monkeypatch)
        except Violation as error:
            print(f"found at seed {seed}: {error}")
            return
    pytest.fail("no story found it")
