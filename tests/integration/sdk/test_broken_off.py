"""Bodies that do not end, in a consumer that is left in order, as services do: their messages come again."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import pytest

from penstock import Admin, AsyncConsumer, Consumer, Message, Producer
from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


def made(running: BrokerProcess, topic: str) -> None:
    Admin(running.bootstrap).create(topic, partitions=1)
    with Producer(running.bootstrap) as producer:
        producer.send_many(topic, [b"0", b"1", b"2"]).result()


def committed(running: BrokerProcess, topic: str) -> int:
    return Admin(running.bootstrap).committed(topic).get((topic, 0), 0)


@pytest.mark.parametrize("how", ["cancelled", "under way", "raises", "timeout in handling"])
def test_in_a_task_of_its_own(running: BrokerProcess, how: str) -> None:
    topic = "async-" + how.replace(" ", "-")
    made(running, topic)

    async def main() -> None:
        async with AsyncConsumer(running.bootstrap, topic, group=topic) as consumer:
            begun = asyncio.Event()

            async def handler(_: Message) -> None:
                begun.set()
                if how == "raises":
                    raise ValueError("no")
                await asyncio.Event().wait()

            if how == "timeout in handling":
                async for message in consumer:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            with consumer.handling(message):
                                await handler(message)
                    break
                return
            task = asyncio.create_task(consumer.run(handler))
            await begun.wait()
            if how == "under way":
                return
            if how == "cancelled":
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert committed(running, topic) == 0


@pytest.mark.parametrize("how", ["raised", "under way"])
def test_in_a_thread(running: BrokerProcess, how: str) -> None:
    topic = "thread-" + how.replace(" ", "-")
    made(running, topic)
    begun, left = Event(), Event()

    def body(_: object) -> None:
        begun.set()
        if how == "under way":
            left.wait(60)
        raise ValueError("no")

    def work() -> None:
        with suppress(ValueError):
            consumer.run(body)

    with Consumer(running.bootstrap, topic, group=topic) as consumer:
        thread = Thread(target=work)
        thread.start()
        begun.wait(60)
        if how == "raised":
            thread.join()
    left.set()
    thread.join()
    assert committed(running, topic) == 0


def test_who_goes_on_is_handed_it_again(running: BrokerProcess) -> None:
    made(running, "again")
    seen: list[bytes] = []

    def body(message: Message) -> None:
        seen.append(message.value)
        if len(seen) == 2:
            raise ValueError("no")
        if len(seen) == 4:
            consumer.stop()

    with Consumer(running.bootstrap, "again", group="again") as consumer:
        with pytest.raises(ValueError, match="no"):
            consumer.run(body)
        consumer.run(body)
    assert seen == [b"0", b"1", b"1", b"2"]
    assert committed(running, "again") == 3
