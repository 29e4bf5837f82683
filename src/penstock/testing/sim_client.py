"""A small Kafka client for the simulation: one request at a time per connection, whole batches in and out."""

import asyncio
from struct import Struct
from typing import Any

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from penstock.wire.kafka.messages import request_module

_SIZE = Struct(">i")
VERSIONS = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.CREATE_TOPICS: 7, ApiKey.INIT_PRODUCER_ID: 4}


class SimClient:
    """Reconnects by itself; every failure is one of `OSError`, `TimeoutError` or `EOFError` to the caller."""

    def __init__(self, host: str, port: int, timeout_s: float = 5.0) -> None:
        self._address = (host, port)
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0

    async def call(self, api: ApiKey, request: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._call(api, request)
        except (OSError, EOFError, TimeoutError):
            self.disconnect()
            raise

    async def _call(self, api: ApiKey, request: Any) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        self._correlation_id += 1
        version = VERSIONS[api]
        header = RequestHeader(
            api_key=api, api_version=version, correlation_id=self._correlation_id, client_id="sim"
        )
        codec = request_module(api)
        frame = encode_request_header(header) + codec.encode_request(request, version)
        writer.write(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(await reader.readexactly(4))
        answer = await reader.readexactly(size)
        correlation_id, position = decode_response_header(answer, 0, response_header_version(api, version))
        if correlation_id != self._correlation_id:
            raise AssertionError(f"answer {correlation_id} to request {self._correlation_id}")
        return codec.decode_response(answer, position, version)[0]

    def disconnect(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
