"""Waits of an AsyncConsumer that are cancelled: they lose no message, and leaving does not wait for one."""

import asyncio
import threading
from contextlib import suppress

import pytest
from tests.unit.client.scripted import Broker, install

from penstock.client.aio import AsyncConsumer
from penstock.client.consuming.consumer import Consumer
from penstock.client.retry.policy import Retry

TOPIC, SOURCE = "orders", ("orders", 0)


class Gate:
    """Polls wait behind it, as they do for messages that do not come."""

    def __init__(self) -> None:
        self.polling, self.open = threading.Event(), threading.Event()
        self.open.set()

    def fault(self, call: str, done: bool) -> None:
        if call == "poll" and not done:
            self.polling.set()
            self.open.wait()

    async def reached(self) -> None:
        await asyncio.to_thread(self.polling.wait)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    broker.make(TOPIC, 1)
    install(broker, monkeypatch.setattr)
    return broker


@pytest.mark.parametrize("in_batches", [True, False])
def test_what_a_cancelled_wait_takes_is_for_who_asks_next(broker: Broker, in_batches: bool) -> None:
    gate = Gate()

    async def ask(consumer: AsyncConsumer) -> list[bytes]:
        if in_batches:
            async for batch in consumer.batches(size=10, wait=0.3):
                return [message.value for message in batch]
        async for message in consumer:
            return [message.value]
        return []

    async def work() -> list[bytes]:
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=()) as consumer:
            assert broker.consumer is not None
            broker.consumer.queue.append(("assign", [SOURCE]))
            gate.open.clear()
            broker.fault = gate.fault
            waiting = asyncio.create_task(ask(consumer))
            await gate.reached()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            broker.append(SOURCE, b"1", None, [])
            gate.open.set()  # the thread takes it, with nobody waiting
            await consumer.commit()
            found = await ask(consumer)
            broker.append(SOURCE, b"2", None, [])
            return found + await ask(consumer)

    assert asyncio.run(work()) == [b"1", b"2"]
    assert broker.committed[SOURCE][0] == 2


def test_leaving_does_not_wait_for_a_batch(broker: Broker) -> None:
    gate = Gate()

    async def work() -> None:
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=()) as consumer:
            broker.fault = gate.fault
            gate.open.clear()
            waiting = asyncio.create_task(anext(consumer.batches(size=10, wait=0.3)))
            await gate.reached()
            waiting.cancel()
            gate.open.set()

    asyncio.run(work())
    assert broker.consumer is not None
    assert broker.consumer.closed


@pytest.mark.parametrize("cancelled_again", [False, True])
def test_leaving_closes_whatever_a_cancelled_wait_ended_in(broker: Broker, cancelled_again: bool) -> None:
    """A callback in config may raise anything; here it does while nobody waits any more."""
    gate = Gate()

    def fault(call: str, done: bool) -> None:
        gate.fault(call, done)
        if call == "poll":
            raise ValueError("my metrics hiccup")

    async def work() -> None:
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=(), commit_every=60) as consumer:
            assert broker.consumer is not None
            broker.consumer.queue.append(("assign", [SOURCE]))
            broker.append(SOURCE, b"1", None, [])
            assert (await anext(aiter(consumer))).value == b"1"
            gate.open.clear()
            gate.polling.clear()
            broker.fault = fault
            waiting = asyncio.create_task(anext(aiter(consumer)))
            await gate.reached()
            waiting.cancel()
            asyncio.get_running_loop().call_soon(gate.open.set)
            if cancelled_again:
                me = asyncio.current_task()
                assert me is not None
                me.cancel()

    with suppress(asyncio.CancelledError):
        asyncio.run(work())
    for thread in threading.enumerate():  # who was cancelled again did not wait for it
        if thread.name.startswith("penstock-consumer"):
            thread.join()
    assert broker.consumer is not None
    assert broker.consumer.closed
    assert broker.committed[SOURCE][0] == 1


def test_nothing_is_handed_out_while_a_cancelled_commit_is_made(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count what is handed out meanwhile as done."""
    at_it, go_on = threading.Event(), threading.Event()
    committed = Consumer.commit

    def slow(consumer: Consumer) -> None:
        at_it.set()
        go_on.wait()
        committed(consumer)

    monkeypatch.setattr(Consumer, "commit", slow)

    async def work() -> int:
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=(), commit_every=60) as consumer:
            assert broker.consumer is not None
            broker.consumer.queue.append(("assign", [SOURCE]))
            for value in (b"1", b"2", b"3"):
                broker.append(SOURCE, value, None, [])
            messages = aiter(consumer)
            await anext(messages)
            commit = asyncio.create_task(consumer.commit())
            await asyncio.to_thread(at_it.wait)
            commit.cancel()
            asking = asyncio.create_task(anext(messages))
            await asyncio.sleep(0)
            go_on.set()
            await asking
            monkeypatch.setattr(Consumer, "commit", committed)
            await consumer._idle()
            return broker.committed[SOURCE][0]

    assert asyncio.run(work()) == 1


@pytest.mark.parametrize("by_key", [False, True])
def test_passing_messages_on_waits_in_the_thread(broker: Broker, by_key: bool) -> None:
    """Asking for partitions, room in the buffers, and the answer may each take long: not on the event loop's time."""
    blocked: list[str] = []

    def fault(call: str, _: bool) -> None:
        if call in ("partitions", "produce") and threading.current_thread() is threading.main_thread():
            blocked.append(call)

    async def work() -> None:
        retry = Retry(attempts=2, backoff="1s", ordered_by_key=by_key)
        tries = 0
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=(), retry=retry) as consumer:
            assert broker.consumer is not None
            broker.fault = fault
            retries = [place for place in broker.logs if place[0] == f"{TOPIC}.g.retry"]
            broker.consumer.queue.append(("assign", [SOURCE, *retries]))
            async for message in consumer:
                with consumer.handling(message):
                    tries += 1
                    broker.clock.now += 10
                    if tries < 6:
                        raise ValueError("no")
                if tries == 6:
                    break

    for number in range(3):
        broker.append(SOURCE, b"%d" % number, b"k", [])
    asyncio.run(work())
    assert blocked == []
    assert [dead.value() for dead in broker.logs[f"{TOPIC}.g.dlq", 0]] == [b"0", b"1"]
    assert broker.committed[SOURCE][0] == 3


def test_what_failed_last_is_passed_on_before_leaving(broker: Broker) -> None:
    async def work() -> None:
        retry = Retry(attempts=1)
        async with AsyncConsumer("scripted", TOPIC, group="g", stop_on=(), retry=retry) as consumer:
            assert broker.consumer is not None
            broker.consumer.queue.append(("assign", [SOURCE]))
            async for message in consumer:
                with consumer.handling(message):
                    raise ValueError("no")
                await consumer.commit()
                assert len(broker.logs[f"{TOPIC}.g.dlq", 0]) == message.offset + 1
                if message.offset == 1:
                    break
            async for message in consumer:
                with consumer.handling(message):
                    raise ValueError("no")
                break

    for number in range(3):
        broker.append(SOURCE, b"%d" % number, b"k", [])
    asyncio.run(work())
    assert [dead.value() for dead in broker.logs[f"{TOPIC}.g.dlq", 0]] == [b"0", b"1", b"2"]
    assert broker.committed[SOURCE][0] == 3
