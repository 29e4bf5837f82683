"""Retries and dead letters with coroutines: as with the plain consumer, and the event loop stays free."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, AsyncConsumer, AsyncProducer, Consumer, Message, Retry
from penstock.client.retry import headers as retry_headers

NewTopic = Callable[[int], str]


async def send(cluster: Cluster, topic: str, values: list[str], keys: list[str] | None = None) -> None:
    async with AsyncProducer(cluster.bootstrap) as producer:
        await producer.send_many(topic, values, keys=keys)


def dead_letter(cluster: Cluster, topic: str) -> Message:
    with Consumer(cluster.bootstrap, f"{topic}.{topic}.dlq") as consumer:
        message = consumer.receive()
    assert message is not None
    return message


def test_a_poison_message_delays_nobody_and_ends_as_a_dead_letter(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    order: list[tuple[str, int]] = []

    async def work() -> None:
        await send(cluster, topic, ["poison", *map(str, range(20))])
        retry = Retry(attempts=3, backoff="100ms..200ms")
        async with AsyncConsumer(cluster.bootstrap, topic, group=topic, retry=retry) as consumer:

            async def handle(message: Message) -> None:
                await asyncio.sleep(0)
                order.append((message.value.decode(), message.attempt))
                if message.value == b"poison":
                    if message.attempt == 3:
                        consumer.stop()
                    raise ValueError("bad")

            await consumer.run(handle)

    asyncio.run(work())
    assert order == [("poison", 1), *((str(n), 1) for n in range(20)), ("poison", 2), ("poison", 3)]
    dead = dead_letter(cluster, topic)
    assert (dead.value, dead.origin) == (b"poison", (topic, 0, 0))
    assert retry_headers.error(dead.headers) == "ValueError: bad"
    assert len(retry_headers.history(dead.headers)) == 3
    # Everything is settled: the topic itself and both tries.
    assert Admin(cluster.bootstrap).describe_group(topic).lag == 0


def test_other_coroutines_run_while_a_consumer_waits_for_a_retry(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    answers: list[str] = []

    async def work() -> None:
        await send(cluster, topic, ["ask"])
        asked: asyncio.Queue[str] = asyncio.Queue()
        answered = asyncio.Event()

        async def answer() -> None:
            answers.append(await asked.get())
            answered.set()

        async with (
            asyncio.TaskGroup() as tasks,
            AsyncConsumer(
                cluster.bootstrap, topic, group=topic, retry=Retry(attempts=9, backoff="50ms")
            ) as consumer,
        ):
            tasks.create_task(answer())
            async for message in consumer:
                with consumer.handling(message):
                    if message.attempt == 1:
                        raise RuntimeError("nobody has asked yet")
                    asked.put_nowait(f"at try {message.attempt}")
                    await answered.wait()  # the other coroutine has to run for this to end
                    consumer.stop()

    asyncio.run(work())
    assert answers == ["at try 2"]


def test_order_per_key_is_kept_where_asked(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    done: defaultdict[bytes, list[int]] = defaultdict(list)
    tries: Counter[int] = Counter()

    async def work() -> None:
        await send(
            cluster, topic, [str(n) for n in range(30)], keys=[f"key-{number % 3}" for number in range(30)]
        )
        retry = Retry(attempts=5, backoff="50ms..100ms", ordered_by_key=True)
        async with AsyncConsumer(cluster.bootstrap, topic, group=topic, retry=retry) as consumer:
            async for message in consumer:
                with consumer.handling(message):
                    await asyncio.sleep(0)
                    number = int(message.value)
                    tries[number] += 1
                    if number in (0, 4, 7) and tries[number] < 3:
                        raise RuntimeError(f"{number} is not ready")
                    assert message.key is not None
                    done[message.key].append(number)
                    if sum(map(len, done.values())) == 30:
                        break

    asyncio.run(work())
    assert dict(done) == {f"key-{n}".encode(): list(range(n, 30, 3)) for n in range(3)}


def test_a_cancelled_body_is_no_failure_and_its_message_comes_again(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    retry = Retry(attempts=2, backoff="50ms")
    seen: list[tuple[str, int]] = []

    async def interrupted() -> None:
        await send(cluster, topic, ["first", "second"])
        begun = asyncio.Event()

        async def work() -> None:
            async with AsyncConsumer(cluster.bootstrap, topic, group=topic, retry=retry) as consumer:
                async for message in consumer:
                    with consumer.handling(message):
                        if message.value == b"second":
                            begun.set()
                            await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def again() -> None:
        async with AsyncConsumer(cluster.bootstrap, topic, group=topic, retry=retry) as consumer:
            async for message in consumer:
                seen.append((message.value.decode(), message.attempt))
                break

    asyncio.run(interrupted())
    assert Admin(cluster.bootstrap).committed(topic) == {(topic, 0): 1}
    asyncio.run(again())
    assert seen == [("second", 1)]
