"""A connection in memory: requests go as frames through the dispatcher, and answers are decoded from theirs."""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any

from tests.unit.frontends.in_memory import Asked

from penstock.core.session import Session
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.frontends.kafka.hot import HotPath
from penstock.storage.segment import Slice
from penstock.wire.kafka.headers import RequestHeader, encode_request_header
from penstock.wire.kafka.messages import request_module

CORRELATION_ID = 77


class Reply:
    """A place in the row of answers; None until it is filled."""

    def __init__(self, session: Session, api_key: int, version: int) -> None:
        self.session = session
        self.abandoned: Callable[[], None] | None = None
        self._key, self._version = api_key, version
        self.answer: Any = None
        self.task: asyncio.Future[Any] | None = None

    def send(self, parts: list[object]) -> None:
        assert self.answer is None, "answered twice"
        frame = b"".join(map(_data, parts))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == CORRELATION_ID
        codec = request_module(self._key)
        position = 9 if self._version >= codec.FLEXIBLE_SINCE and self._key != 18 else 8
        self.answer, end = codec.decode_response(frame, position, self._version)
        assert end == len(frame)

    async def filled(self) -> Any:
        async with asyncio.timeout(10):
            while self.answer is None:
                if self.task is not None and self.task.done():
                    self.task.result()  # what it raised
                await asyncio.sleep(0)
        return self.answer


class Connected:
    peer = "127.0.0.1"

    def __init__(self, asked: Asked) -> None:
        services = asked.services
        loop = asyncio.get_running_loop()
        hot = HotPath(loop, services.table, services.writer, asked.broker.fetches)
        self.dispatcher = KafkaDispatcher(services, hot, asked.broker.in_thread)
        self.session = Session(asked.listener, self.peer)
        self.is_aborted = False
        self.runs = 0  # requests that had to be taken off the loop's turn
        self._reply: Any = None

    def ask(self, key: int, version: int, request: Any, client_id: str | None = "tester") -> Reply:
        """Answered already, or a reply that will be. ProtocolError closes the connection."""
        return self.send(key, version, request_module(key).encode_request(request, version), client_id)

    def send(self, key: int, version: int, body: bytes, client_id: str | None = "tester") -> Reply:
        header = RequestHeader(
            api_key=key, api_version=version, correlation_id=CORRELATION_ID, client_id=client_id
        )
        return self._dispatched(encode_request_header(header) + body, Reply(self.session, key, version))

    def send_raw(self, key: int, version: int, *, answered_in: int = -1) -> Reply:
        """A header of any API and version, and nothing else."""
        head = Struct(">hhih").pack(key, version, CORRELATION_ID, len(b"tester")) + b"tester"
        return self._dispatched(head, Reply(self.session, key, answered_in))

    def _dispatched(self, frame: bytes, reply: Reply) -> Reply:
        self._reply = reply
        parts = self.dispatcher.dispatch(self, memoryview(bytearray(frame)))
        self.dispatcher.write_held()
        if parts:  # empty: it was deferred by the short cut
            reply.send(parts)
        return reply

    def defer(self, abandoned: Callable[[], None] | None = None, held_bytes: int = 0) -> Reply:
        self._reply.abandoned = abandoned
        return self._reply  # type: ignore[no-any-return]

    def run(self, work: Any, held_bytes: int = 0) -> None:
        self.runs += 1
        reply = self._reply

        async def answered() -> None:
            parts = await work
            if callable(parts):
                parts(reply)
            elif parts is not None:
                reply.send(parts)

        reply.task = asyncio.ensure_future(answered())

    def room_for(self, size_bytes: int) -> None:
        """There is always room."""

    def has_left(self) -> bool:
        return False

    def abort(self) -> None:
        self.is_aborted = True


def _data(part: Any) -> bytes:
    if isinstance(part, Slice):
        return part.file.pread(part.size, part.position)
    return bytes(part)
