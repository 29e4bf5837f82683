"""A small Kafka client for the simulation: one request at a time per connection, whole batches in and out."""

import asyncio
from typing import Any

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection

VERSIONS = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 9,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.UNREGISTER_BROKER: 0,
}


class _Wire(asyncio.Protocol):
    """One connection; the answer to the request under way, or its end, resolves `answer`."""

    def __init__(self) -> None:
        self._connection = ClientConnection("sim")
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for response in self._connection.receive(data):
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(response.message())

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the broker closed the connection"))

    async def ask(self, api: int, request: Any, version: int) -> Any:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._connection.send(api, version, request)[1])
        return await self._answer

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class SimClient:
    """Connects when it has to; every failure is an `OSError` or `TimeoutError` to the caller."""

    def __init__(self, host: str, port: int, timeout_s: float = 5.0) -> None:
        self._address = (host, port)
        self._timeout_s = timeout_s
        self._wire: _Wire | None = None

    async def call(self, api: int, request: Any, version: int | None = None) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._wire is None or not self._wire.usable:
                    loop = asyncio.get_running_loop()
                    _, self._wire = await loop.create_connection(_Wire, *self._address)
                return await self._wire.ask(
                    api, request, VERSIONS[ApiKey(api)] if version is None else version
                )
        except (OSError, TimeoutError):
            if self._wire is not None:
                self._wire.close()
            raise
