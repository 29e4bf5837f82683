"""One client connection: bytes in, frames to the dispatcher, responses out in request order.

No task per request. Produce and Fetch are answered from inside `buffer_updated`; one that has to wait leaves a
`Reply` in the queue of owed responses, and later ones line up behind it. Everything else may be a coroutine: then
reading stops until it is done, so that such requests of one client take effect in the order they were sent.

Memory is bounded: a connection stops reading while it owes too many responses or too many unsent bytes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import Protocol, cast

from penstock.core.clock import stopwatch
from penstock.core.errors import ApiError, ProtocolError
from penstock.core.limits import (
    ANSWER_GATHERED_BYTES_MAX,
    ANSWERS_GATHERED_MAX,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_GROWN_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    REQUESTS_HELD_BYTES_MAX,
    RESPONSES_OWED_MAX,
    SEND_BUFFER_BYTES,
    SMALL_TALK_BYTES_MAX,
    TURN_BYTES_MAX,
)
from penstock.core.stats import RequestStats
from penstock.server.awake import Awake
from penstock.server.writer import Part, SocketWriter, TransportWriter, set_buffers
from penstock.storage.segment import Slice

_SIZE = Struct(">i")
_FRAME_BYTES_MIN = 8  # api key, version, correlation id

log = logging.getLogger(__name__)


class Dispatcher(Protocol):
    """Turns a frame into a response, now (parts) or later (None, after `connection.defer` or `run`)."""

    def dispatch(self, connection: "Connection", frame: memoryview) -> list[Part] | None: ...

    def settle(self) -> None:
        """Finish what requests left to be done together, before their answers leave; ApiError if it failed."""
        ...


class Host(Protocol):
    """What a connection needs of the server it belongs to."""

    request_bytes_max: int
    socket_buffers: tuple[int, int]  # receive and send, in bytes; negative: the system's
    bytes_in: int
    bytes_out: int
    requests: RequestStats
    awake: Awake

    def opened(self, connection: "Connection") -> bool: ...
    def closed(self, connection: "Connection") -> None: ...
    def run(self, work: Coroutine[object, object, None]) -> None: ...


class Reply:
    """A response that is owed."""

    __slots__ = ("_api_key", "_began", "_connection", "abandoned", "held_bytes", "parts")

    def __init__(self, connection: "Connection", api_key: int, began: float) -> None:
        self._connection = connection
        self._api_key = api_key
        self._began = began
        self.abandoned: Callable[[], None] | None = None  # to be called when the client is gone
        self.held_bytes = 0  # of the request, while it waits
        self.parts: list[Part] | None = None

    def send(self, parts: list[Part]) -> None:
        self.parts = parts
        self._connection.reply_ready(self._api_key, self._began)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, host: Host, dispatcher: Dispatcher) -> None:
        self.loop = loop
        self._host = host
        self._dispatcher = dispatcher
        self.produces = False  # whether records ever came this way
        self._transport: asyncio.Transport | None = None
        self._writer: SocketWriter | TransportWriter | None = None
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first byte not yet dispatched
        self._end = 0  # of the last byte received
        self._owed: deque[Reply] = deque()
        self._held_bytes = 0  # of the requests behind `_owed` that are kept while they wait
        self._ready: list[Part] = []
        self._flush_soon = False
        self._busy = False  # a coroutine works on a request: nothing else is dispatched
        self._reading = True
        self._in_conversation = False  # small requests, as opposed to bulk
        self._turn_bytes = 0  # received since it last gave way to others
        self._api_key = 0  # of the request being dispatched, and since when
        self._began = 0.0
        self.last_active = loop.time()
        self.peer = ""

    # -- asyncio.BufferedProtocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else "?"
        sock = transport.get_extra_info("socket")
        if sock is None:
            self._writer = TransportWriter(transport)
        else:
            set_buffers(sock.fileno(), *self._host.socket_buffers)
            self._writer = SocketWriter(self.loop, transport, sock.fileno(), self._drained)
        if not self._host.opened(self):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._host.bytes_in += nbytes
        self.last_active = self.loop.time()
        if not self._busy:
            self._process()
        self._turn_bytes += nbytes
        if self._turn_bytes >= TURN_BYTES_MAX:
            self._turn_bytes = 0
            self._end_turn()

    def _end_turn(self) -> None:
        """The loop would go on reading from a busy client many times over: let the others have their turn."""
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
            self.loop.call_soon(self._regulate_reading)

    def eof_received(self) -> bool | None:
        return None  # close

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writer is not None:
            self._writer.close()
        self._transport = None
        for reply in self._owed:
            if reply.abandoned is not None:
                reply.abandoned()
        self._owed.clear()
        self._ready.clear()
        self._host.closed(self)

    def pause_writing(self) -> None:
        """Nothing: `_may_read` looks at the unsent bytes itself."""

    def resume_writing(self) -> None:
        if isinstance(self._writer, TransportWriter):
            self._writer.resume()
        self._drained()

    # -- requests -------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Dispatch every whole frame that has arrived."""
        view, start, end = self._view, self._start, self._end
        first = start
        dispatch = self._dispatcher.dispatch
        observe = self._host.requests.observe
        self._began = stopwatch()
        wanted = 4
        try:
            while end - start >= 4:
                (size,) = _SIZE.unpack_from(view, start)
                if size < _FRAME_BYTES_MIN or size > self._host.request_bytes_max:
                    raise ProtocolError(f"a frame of {size} bytes")
                if end - start - 4 < size:
                    wanted = size + 4
                    break
                frame = view[start + 4 : start + 4 + size]
                start += 4 + size
                self._start = start
                self._api_key = frame[0] << 8 | frame[1]
                parts = dispatch(self, frame)
                if parts:
                    self._answer(parts)
                    now = stopwatch()
                    observe(self._api_key, now - self._began)
                    self._began = now
                    if not self._may_gather(parts):
                        break
                if self._busy or self._transport is None:
                    break
                if len(self._owed) >= RESPONSES_OWED_MAX or self._held_bytes > REQUESTS_HELD_BYTES_MAX:
                    break
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.peer, error)
            self._flush()
            self.close()
            return
        except Exception:  # a bug of ours; nobody else's connection shall suffer from it
            log.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
            return
        self._start = start
        # By whole requests: the last read of a large one may be small.
        self._in_conversation = start - first <= SMALL_TALK_BYTES_MAX
        if not self._busy:
            self._make_room(wanted)
        self._flush()
        self._regulate_reading()

    def _make_room(self, wanted: int) -> None:
        """Keep space behind the received bytes for the rest of a frame, and no more memory than is needed."""
        start, end, capacity = self._start, self._end, len(self._buffer)
        filled = end == capacity
        if start == end:
            self._start = self._end = 0
            if capacity > RECEIVE_BUFFER_KEPT_BYTES:
                self._new_buffer(RECEIVE_BUFFER_BYTES)
            elif filled and capacity < RECEIVE_BUFFER_GROWN_BYTES:
                self._new_buffer(2 * capacity)
            return
        if wanted > capacity:
            # With what has come, not with what was announced: a length costs its sender nothing.
            if filled:
                self._new_buffer(min(wanted, max(capacity, 4 * (end - start))))
        elif filled and capacity < RECEIVE_BUFFER_GROWN_BYTES:
            self._new_buffer(2 * capacity)
        elif start + wanted > capacity or filled:
            left = bytes(self._view[start:end])
            self._view[: len(left)] = left
            self._start, self._end = 0, len(left)

    def give_back_buffer(self) -> None:
        """The client is quiet: what its last burst needed is not kept for the next one."""
        if self._start == self._end and len(self._buffer) > RECEIVE_BUFFER_BYTES:
            self._new_buffer(RECEIVE_BUFFER_BYTES)

    def _new_buffer(self, capacity: int) -> None:
        left = self._view[self._start : self._end]
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self._view[: len(left)] = left
        self._start, self._end = 0, len(left)

    def run(self, work: Coroutine[object, object, list[Part] | None]) -> None:
        """Answer the current request with what a coroutine returns; no further request meanwhile."""
        self._busy = True
        reply = self.defer()
        self._host.run(self._run(work, reply))

    async def _run(self, work: Coroutine[object, object, list[Part] | None], reply: Reply) -> None:
        parts: list[Part] | None = None
        try:
            parts = await work
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.peer, error)
            self.close()
        except Exception:
            log.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
        self._busy = False
        if parts is not None:
            reply.send(parts)
        if self._transport is not None:
            self._process()

    # -- responses ------------------------------------------------------------------------------------------

    def defer(self, abandoned: Callable[[], None] | None = None, held_bytes: int = 0) -> Reply:
        """A place in the row of responses for the current request, to be filled later."""
        reply = Reply(self, self._api_key, self._began)
        if held_bytes:
            reply.abandoned, reply.held_bytes = abandoned, held_bytes
            self._held_bytes += held_bytes
        self._owed.append(reply)
        return reply

    def _answer(self, parts: list[Part]) -> None:
        if self._owed:
            reply = Reply(self, self._api_key, self._began)
            reply.parts = parts
            self._owed.append(reply)
            reply.held_bytes = sum(len(part) for part in parts if not isinstance(part, Slice))
            self._held_bytes += reply.held_bytes
        else:
            self._ready += parts

    def _may_gather(self, parts: list[Part]) -> bool:
        """Whether further requests may be answered before this answer has gone."""
        if (
            len(parts) == 1
            and len(self._ready) < ANSWERS_GATHERED_MAX
            and len(cast(bytes, parts[0])) <= ANSWER_GATHERED_BYTES_MAX
        ):
            return True
        self._flush()
        return self._writer is not None and self._writer.unsent_bytes <= SEND_BUFFER_BYTES

    def reply_ready(self, api_key: int, began: float) -> None:
        """Some owed response is there: send those at the front, at the end of this turn of the loop."""
        self._host.requests.observe(api_key, stopwatch() - began)
        owed = self._owed
        while owed and (parts := owed[0].parts) is not None:
            self._held_bytes -= owed.popleft().held_bytes
            self._ready += parts
        if self._ready and not self._flush_soon:
            self._flush_soon = True
            self.loop.call_soon(self._flush_and_go_on)

    def _flush_and_go_on(self) -> None:
        self._flush_soon = False
        if self._transport is None:
            return
        self._flush()
        if not self._reading:
            self._drained()

    def _flush(self) -> None:
        try:
            self._dispatcher.settle()
        except ApiError as error:
            # Some of what was to be acknowledged is not stored. Which answers say so is not known any more.
            log.warning("closing the connection of %s without an answer: %s", self.peer, error)
            self._ready.clear()
            self.abort()
            return
        ready, self._ready = self._ready, []
        if ready and self._writer is not None:
            size = sum(part.size if isinstance(part, Slice) else len(part) for part in ready)
            self._host.bytes_out += size
            self._writer.send(ready)
            if self._in_conversation and size <= SMALL_TALK_BYTES_MAX:
                self._host.awake.prolong()

    def _may_read(self) -> bool:
        assert self._writer is not None
        return (
            not self._busy
            and len(self._owed) < RESPONSES_OWED_MAX
            and self._held_bytes <= REQUESTS_HELD_BYTES_MAX
            and self._writer.unsent_bytes <= SEND_BUFFER_BYTES
        )

    def _regulate_reading(self) -> None:
        transport = self._transport
        if transport is None:
            return
        may_read = self._may_read()
        if may_read != self._reading:
            self._reading = may_read
            if may_read:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _drained(self) -> None:
        """The client took what it was owed: go on with what it sent meanwhile."""
        if self._transport is not None and not self._busy and self._may_read():
            self._process()

    def close(self) -> None:
        if self._transport is not None:
            if self._ready:
                self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
