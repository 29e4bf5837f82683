"""SIGTERM, whatever kind of loop a consumer runs: the body ends, what it did is committed, the group is left."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.integration.commands import environment
from tests.integration.raw import wait_until
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, Producer

NewTopic = Callable[[int], str]

COMMON = """
import asyncio, sys
from penstock import AsyncConsumer, Consumer, Retry
bootstrap, topic = sys.argv[1:3]
options = {"group": topic, "commit_every": 1000}
retry = Retry(attempts=2, backoff="10s")

def body(*messages):
    print("begin", *(message.value.decode() for message in messages), flush=True)
    sys.stdin.readline()
    print("end", flush=True)
"""
LOOPS = {
    "run with retries": """
with Consumer(bootstrap, topic, retry=retry, **options) as consumer:
    consumer.run(body)
""",
    "a body that fails": """
def fail(message):
    body(message)
    raise ValueError

with Consumer(bootstrap, topic, retry=retry, **options) as consumer:
    consumer.run(fail)
""",
    "receive": """
with Consumer(bootstrap, topic, **options) as consumer:
    while (message := consumer.receive()) is not None:
        body(message)
""",
    "batches": """
with Consumer(bootstrap, topic, **options) as consumer:
    for batch in consumer.batches(size=1):
        body(*batch)
""",
    "receive_many": """
with Consumer(bootstrap, topic, **options) as consumer:
    while found := consumer.receive_many(1):
        body(*found)
""",
    "asyncio": """
async def main():
    async with AsyncConsumer(bootstrap, topic, **options) as consumer:
        async for message in consumer:
            await asyncio.to_thread(body, message)

asyncio.run(main())
""",
    "asyncio, a body that never awaits": """
async def main():
    async with AsyncConsumer(bootstrap, topic, **options) as consumer:
        async for message in consumer:
            body(message)

asyncio.run(main())
""",
    "asyncio, run with retries": """
async def handle(message):
    await asyncio.to_thread(body, message)

async def main():
    async with AsyncConsumer(bootstrap, topic, retry=retry, **options) as consumer:
        await consumer.run(handle)

asyncio.run(main())
""",
    "asyncio, batches": """
async def main():
    async with AsyncConsumer(bootstrap, topic, **options) as consumer:
        async for batch in consumer.batches(size=1):
            await asyncio.to_thread(body, *batch)

asyncio.run(main())
""",
}


@contextmanager
def started(cluster: Cluster, topic: str, loop: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            COMMON + LOOPS[loop] + "\nprint('left', flush=True)",
            cluster.bootstrap,
            topic,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("loop", LOOPS)
def test_sigterm_lets_the_body_end_commits_and_leaves(
    cluster: Cluster, new_topic: NewTopic, loop: str
) -> None:
    topic = new_topic(1)
    with Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, ["0", "1", "2"]).result()
    with started(cluster, topic, loop) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begin 0\n"
        process.send_signal(signal.SIGTERM)
        process.stdin.close()  # the body ends; so would any other that came after it
        assert process.stdout.read().split() == ["end", "left"]
        assert process.wait() == 0
    admin = Admin(cluster.bootstrap)
    assert admin.describe_group(topic).members == ()
    assert admin.committed(topic) == {(topic, 0): 1}
    if loop == "a body that fails":
        waiting = admin.describe(f"{topic}.{topic}.retry").partitions
        assert [partition.latest for partition in waiting] == [1], (
            "its next try was stored before it was committed"
        )


@pytest.mark.parametrize("loop", ["run with retries", "receive_many", "asyncio"])
def test_sigterm_ends_a_consumer_that_has_nothing_to_do(
    cluster: Cluster, new_topic: NewTopic, loop: str
) -> None:
    topic = new_topic(1)
    admin = Admin(cluster.bootstrap)
    with started(cluster, topic, loop) as process:
        assert process.stdout is not None
        wait_until(
            lambda: any(group.state == "stable" for group in admin.describe_groups([topic])), "it has joined"
        )
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().split() == ["left"]
        assert process.wait() == 0
    assert admin.describe_groups([topic]) == [] or admin.describe_group(topic).members == ()
