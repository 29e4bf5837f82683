"""Client ids that say "broker": they share the brokers' place for large requests, and have no turns by their names."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.limits import LARGE_REQUEST_BYTES
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.replication.peer import CLIENT_ID_PREFIX
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

    async def fetch(self, name: str, address: str, client_id: str) -> None:
        connection = SimpleNamespace(name=name, peer=address, has_left=lambda: False, run=self._run)
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


def own_node(asked: Asked) -> int:
    return next(iter(asked.services.image.brokers))


async def test_who_makes_up_client_ids_has_no_more_turns_than_a_broker() -> None:
    async with Machine().broker() as asked:
        scene, node = Scene(asked), own_node(asked)
        for number in range(FETCHES):
            await scene.fetch("claims", "there", f"{CLIENT_ID_PREFIX}{node}-{number}")
        await scene.fetch("broker", "here", f"{CLIENT_ID_PREFIX}{node}-fetcher")
        assert (await scene.end_all()).index("broker") == 1


async def test_brokers_and_clients_do_not_wait_for_each_other() -> None:
    async with Machine().broker() as asked:
        scene, node = Scene(asked), own_node(asked)
        await scene.fetch("client", "here", "client")
        await scene.fetch("broker", "here", f"{CLIENT_ID_PREFIX}{node}-fetcher")
        await scene.fetch("no broker", "elsewhere", f"{CLIENT_ID_PREFIX}{node + 1}-fetcher")
        assert scene.hot.served == ["client", "broker"]
        await scene.end_all()
