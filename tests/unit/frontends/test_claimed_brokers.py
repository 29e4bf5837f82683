"""Large requests of brokers wait for those of brokers alone, whatever a client calls itself."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.limits import LARGE_REQUEST_BYTES
from penstock.core.session import NO_BROKER, Session
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.wire.kafka.api_keys import ApiKey

PADDING = bytes(LARGE_REQUEST_BYTES)
VERSION = 12
FETCHES = 5


class Hot:
    """Takes large fetches, each until it is told to end."""

    write_held = None

    def __init__(self) -> None:
        self.served: list[str] = []
        self.ends: asyncio.Queue[None] = asyncio.Queue()

    async def fetch_large(self, connection: Any, *_: object) -> list[object]:
        self.served.append(connection.name)
        await self.ends.get()
        return []


class Scene:
    def __init__(self, asked: Asked) -> None:
        self.hot = Hot()
        self._dispatcher = KafkaDispatcher(asked.services, self.hot, asked.broker.in_thread)  # type: ignore[arg-type]
        self._tasks: list[asyncio.Task[object]] = []

    async def fetch(self, name: str, address: str, client_id: str, broker: int = NO_BROKER) -> None:
        session = Session("PLAINTEXT", address)
        session.broker = broker
        connection = SimpleNamespace(
            name=name, peer=address, has_left=lambda: False, run=self._run, session=session
        )
        head = ApiKey.FETCH.to_bytes(2, "big") + VERSION.to_bytes(2, "big") + bytes(4)
        frame = head + len(client_id).to_bytes(2, "big") + client_id.encode() + PADDING
        assert self._dispatcher.dispatch(connection, memoryview(frame)) is None
        await self._turns()

    def _run(self, work: Any, held_bytes: int = 0) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def end_all(self) -> list[str]:
        while not all(task.done() for task in self._tasks):
            self.hot.ends.put_nowait(None)
            await self._turns()
        return self.hot.served

    async def _turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_broker_has_no_more_turns_than_another_however_many_connections_it_has() -> None:
    async with Machine().broker() as asked:
        scene = Scene(asked)
        for number in range(FETCHES):
            await scene.fetch("one", "here", f"fetcher-{number}", broker=2)
        await scene.fetch("another", "here", "fetcher", broker=3)
        assert (await scene.end_all()).index("another") == 1


async def test_brokers_and_clients_do_not_wait_for_each_other() -> None:
    async with Machine().broker() as asked:
        scene = Scene(asked)
        await scene.fetch("client", "here", "client")
        await scene.fetch("broker", "here", "penstock-broker-2-fetcher", broker=2)
        await scene.fetch("says so", "elsewhere", "penstock-broker-2-fetcher")
        assert scene.hot.served == ["client", "broker"]
        await scene.end_all()
