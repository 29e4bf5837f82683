"""A seek says where to go on, also beside a body that failed with nobody to pass its message on."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import pytest
from tests.unit.client.scripted import Broker, install

from penstock.client.aio import AsyncConsumer
from penstock.client.consuming.consumer import Consumer
from penstock.client.message import Message

SOURCE = ("orders", 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make("orders", 1)
    install(broker, monkeypatch.setattr)
    for number in range(4):
        broker.append(SOURCE, b"%d" % number, b"k", [])
    return broker


def own(broker: Broker) -> None:
    assert broker.consumer is not None
    broker.consumer.queue.append(("assign", [SOURCE]))


def opened(broker: Broker, **options: Any) -> Consumer:
    consumer = Consumer("scripted", "orders", group="g", stop_on=(), **options)
    own(broker)
    return consumer


def asked(consumer: Consumer, form: Literal["receive", "loop"]) -> Iterator[Message]:
    """At most so many: what is handed out again and again has no end."""
    loop = iter(consumer)
    for _ in range(12):
        message = next(loop) if form == "loop" else consumer.receive(0.1)
        if message is None:
            return
        yield message


@pytest.mark.parametrize("form", ["receive", "loop"])
def test_a_seek_past_a_failed_message_skips_it(broker: Broker, form: Literal["receive", "loop"]) -> None:
    consumer = opened(broker)
    seen = []
    for message in asked(consumer, form):
        seen.append(message.offset)
        try:
            with consumer.handling(message):
                if message.offset == 1:
                    raise ValueError("poison")
        except ValueError:
            consumer.seek("orders", 0, 2)
        if message.offset == 3:
            break
    assert seen == [0, 1, 2, 3]
    consumer.close()
    assert broker.committed[SOURCE][0] == 4


@pytest.mark.parametrize("where", ["behind", "inside"])
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_a_seek_back_beside_a_failed_body_is_kept(
    broker: Broker, where: str, delivery: Literal["at-least-once", "at-most-once"]
) -> None:
    """As where a transaction over several messages is rolled back."""
    consumer = opened(broker, delivery=delivery)
    seen = []
    for message in asked(consumer, "receive"):
        seen.append(message.offset)
        fails = message.offset == 2 and seen.count(2) == 1
        with suppress(ValueError), consumer.handling(message):
            if fails:
                if where == "inside":
                    consumer.seek("orders", 0, 0)
                raise ValueError
        if fails and where == "behind":
            consumer.seek("orders", 0, 0)
    assert seen == [0, 1, 2, 0, 1, 2, 3]


def test_no_commit_passes_what_was_sought_in_a_body_that_failed(broker: Broker) -> None:
    consumer = opened(broker, commit_every=1000)
    with consumer:
        for _ in range(2):
            consumer.receive(0.1)
        message = consumer.receive(0.1)
        assert message is not None
        with suppress(ValueError), consumer.handling(message):
            consumer.seek("orders", 0, 1)
            raise ValueError
    assert broker.committed[SOURCE][0] == 1


def test_a_seek_on_in_a_body_that_failed_does_not_pass_its_message(broker: Broker) -> None:
    consumer = opened(broker)
    seen = []
    for message in asked(consumer, "receive"):
        seen.append(message.offset)
        with suppress(ValueError), consumer.handling(message):
            if message.offset == 1 and seen.count(1) == 1:
                consumer.seek("orders", 0, 3)
                raise ValueError
    assert seen == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("call", ["pause", "resume"])
def test_a_failed_message_comes_again_after_a_pause(broker: Broker, call: str) -> None:
    consumer = opened(broker)
    seen = []
    for message in asked(consumer, "receive"):
        seen.append(message.offset)
        with suppress(ValueError), consumer.handling(message):
            if message.offset == 1 and seen.count(1) == 1:
                raise ValueError
        getattr(consumer, call)()
        consumer.resume()
    assert seen == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("where", ["behind", "inside"])
def test_nor_does_an_async_consumer_lose_a_seek(broker: Broker, where: str) -> None:
    async def story() -> list[int]:
        seen: list[int] = []
        async with AsyncConsumer("scripted", "orders", group="g", stop_on=()) as consumer:
            own(broker)
            async for message in consumer:
                seen.append(message.offset)
                fails = message.offset == 2 and seen.count(2) == 1
                with suppress(ValueError), consumer.handling(message):
                    if fails:
                        if where == "inside":
                            await consumer.seek("orders", 0, 0)
                        raise ValueError
                if fails and where == "behind":
                    await consumer.seek("orders", 0, 0)
                if message.offset == 3:
                    break
        return seen

    assert asyncio.run(story()) == [0, 1, 2, 0, 1, 2, 3]
