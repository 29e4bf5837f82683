"""All connections are closed: what is worked on then ends before what it works with goes."""

import asyncio
import inspect

from tests.unit.server.test_sending import Idle
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections

from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part


async def test_what_was_taken_at_the_last_moment_is_begun_and_broken_off() -> None:
    """Never begun, it would leave what it was to await: a coroutine that was never awaited."""
    loop = asyncio.get_running_loop()
    host = connections(loop)
    connection = KafkaConnection(loop, host, Idle(b""), Unlistened())
    seen: list[str] = []

    async def answer() -> list[Part]:
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("broken off")
        return []

    work = answer()

    class Closed(Wire):
        def close(self) -> None:
            connection.run(work)

    connection.connection_made(Closed())
    await host.close()
    assert seen == ["begun", "broken off"]
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
