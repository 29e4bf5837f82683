"""One client connection: bytes in, frames to the dispatcher, responses out in request order.

No task per request. Produce and Fetch are answered from inside `buffer_updated`; one that has to wait leaves a
`Reply` in the queue of owed responses, and later ones line up behind it. Everything else may be a coroutine: then
reading stops until it is done, so that such requests of one client take effect in the order they were sent.

Memory is bounded: a connection stops reading while it owes too many responses or too many unsent bytes, and where the
rest of a large request does not fit into what all connections may hold (`receiving`).
"""

import asyncio
import logging
import mmap
from collections import deque
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import cast

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
    TURN_HELD_BYTES,
)
from penstock.server.owing import Dispatcher, Host, Outcome, Reply
from penstock.server.writer import Part, SocketWriter, TransportWriter, set_buffers
from penstock.storage.segment import Slice

_SIZE = Struct(">i")
_FRAME_BYTES_MIN = 8  # api key, version, correlation id

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, host: Host, dispatcher: Dispatcher) -> None:
        self.loop = loop
        self._host = host
        self._dispatcher = dispatcher
        self.produces = False  # whether records ever came this way
        self._transport: asyncio.Transport | None = None
        self._writer: SocketWriter | TransportWriter | None = None
        self._budget = host.receive_budget
        self._buffer: bytearray | mmap.mmap = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = self._empty = memoryview(self._buffer)  # the second: what a turn may fill of it
        self._starved = False  # waits for room to receive more
        self._start = 0  # of the first byte not yet dispatched
        self._end = 0  # of the last byte received
        self._owed: deque[Reply] = deque()
        self._held_bytes = 0  # of the requests behind `_owed` that are kept while they wait
        self._ready: list[Part] = []
        self._flush_soon = False
        self._busy = False  # a coroutine works on a request: nothing else is dispatched
        self._queued = False  # waits for its turn: nothing is read meanwhile
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
        return self._view[self._end : self._end + TURN_BYTES_MAX] if self._end else self._empty

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
        if len(self._buffer) > RECEIVE_BUFFER_KEPT_BYTES:
            self._may_hold(self._end + TURN_BYTES_MAX, large=True)
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
            self.loop.call_soon(self._regulate_reading)

    def eof_received(self) -> bool | None:
        return None  # close

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writer is not None:
            self._writer.close()
            # It knows us, and would keep us until the next garbage collection.
            self._writer = None
        self._transport = None
        self._start = self._end = 0
        self._use_buffer(bytearray())
        self._budget.release(self)
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
        wanted, held_max = 4, self._held_bytes + TURN_HELD_BYTES
        try:
            while end - start >= 4:
                (size,) = _SIZE.unpack_from(view, start)
                if not _FRAME_BYTES_MIN <= size <= self._host.request_bytes_max:
                    raise ProtocolError(f"a frame of {size} bytes")
                begin = start + 4
                behind = begin + size
                if behind > end:
                    wanted = size + 4
                    break
                frame = view[begin:behind]
                self._start = start = behind
                self._api_key = frame[0] << 8 | frame[1]
                parts = dispatch(self, frame)
                if parts:
                    if self._owed:
                        self._answer_behind(parts)
                    else:
                        self._ready += parts
                    now = stopwatch()
                    observe(self._api_key, now - self._began)
                    self._began = now
                if start == end:  # nearly always: nothing of the rest is asked
                    break
                if parts and not self._may_gather(parts):
                    break
                if self._busy or self._transport is None:
                    break
                if len(self._owed) >= RESPONSES_OWED_MAX or self._held_bytes > held_max:
                    break
            if not self._busy:
                self._make_room(wanted)
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.peer, error)
            self._flush()
            self.close()
            return
        except Exception:  # a bug of ours; nobody else's connection shall suffer from it
            log.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
            return
        # By whole requests: the last read of a large one may be small.
        self._in_conversation = start - first <= SMALL_TALK_BYTES_MAX
        self._flush()
        if self._held_bytes > held_max and not self._queued:
            self._queued = True  # requests that have to wait are dear: everybody else has a turn first
            self._host.queue(self)
        self._regulate_reading()

    def take_turn(self) -> None:
        self._queued = False
        if self._transport is not None:
            self._drained()
            self._regulate_reading()

    def _make_room(self, wanted: int) -> None:
        """Keep space behind the received bytes for the rest of a frame, and no more memory than is needed."""
        start, end, capacity = self._start, self._end, len(self._buffer)
        filled = end == capacity
        if start == end:
            self._start = self._end = 0
            if capacity > self._budget.kept_bytes:
                self._shrink(RECEIVE_BUFFER_BYTES)
            elif filled and capacity < RECEIVE_BUFFER_GROWN_BYTES:
                self._use_buffer(bytearray(min(2 * capacity, RECEIVE_BUFFER_GROWN_BYTES)))
        elif start and end - start + RECEIVE_BUFFER_GROWN_BYTES < capacity > self._budget.kept_bytes:
            self._shrink(end - start + RECEIVE_BUFFER_GROWN_BYTES)
        elif wanted > capacity:
            if filled:
                self._grow(wanted)
        elif filled and capacity < RECEIVE_BUFFER_GROWN_BYTES:
            self._use_buffer(bytearray(min(2 * capacity, RECEIVE_BUFFER_GROWN_BYTES)))
        elif start + wanted > capacity or filled:
            left = bytes(self._view[start:end])
            self._view[: len(left)] = left
            self._start, self._end = 0, len(left)

    def _grow(self, wanted: int) -> None:
        # With what has come, not with what was announced: a length costs its sender nothing.
        received = self._end - self._start
        capacity = min(wanted, max(len(self._buffer), 4 * received))
        if capacity > RECEIVE_BUFFER_KEPT_BYTES:
            self._grow_large(wanted, received)
        elif capacity <= RECEIVE_BUFFER_GROWN_BYTES or self._may_hold(
            capacity, large=wanted > RECEIVE_BUFFER_KEPT_BYTES
        ):
            self._use_buffer(bytearray(capacity))

    def _grow_large(self, wanted: int, received: int) -> None:
        """Room for all of it, so that it is never copied again: pages come to be as they are filled."""
        at = self._start + _SIZE.size
        self._dispatcher.admit(self._view[at] << 8 | self._view[at + 1], wanted - _SIZE.size)
        if self._may_hold(received + TURN_BYTES_MAX, large=True):
            self._use_buffer(mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def _shrink(self, capacity: int) -> None:
        # Always granted, as it is less; and nobody will call for what was asked before.
        self._may_hold(capacity if capacity > RECEIVE_BUFFER_GROWN_BYTES else 0, large=False)
        self._use_buffer(bytearray(capacity))

    def _use_buffer(self, buffer: bytearray | mmap.mmap) -> None:
        left = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._empty = self._view[:TURN_BYTES_MAX]
        self._view[: len(left)] = left
        self._start, self._end = 0, len(left)

    def _may_hold(self, size_bytes: int, *, large: bool) -> bool:
        self._starved = not self._budget.hold(self, size_bytes, large=large)
        return not self._starved

    def received_bytes(self) -> int:
        return -1 if self._busy or self._start == self._end else self._end - self._start

    def go_on_receiving(self) -> None:
        if self._transport is None or self._busy:
            return
        if len(self._buffer) > RECEIVE_BUFFER_KEPT_BYTES:
            self._may_hold(self._end + TURN_BYTES_MAX, large=True)
            self._regulate_reading()
        else:
            self._process()

    def give_back_buffer(self) -> None:
        """The client is quiet: what its last burst needed is not kept for the next one."""
        if self._start == self._end and not self._busy and len(self._buffer) > RECEIVE_BUFFER_BYTES:
            self._shrink(RECEIVE_BUFFER_BYTES)

    def run(self, work: Coroutine[object, object, Outcome]) -> None:
        """Answer the current request with what a coroutine returns (or who answers later); no other one meanwhile."""
        self._busy = True
        reply = self.defer()
        self._host.run(self._run(work, reply))

    async def _run(self, work: Coroutine[object, object, Outcome], reply: Reply) -> None:
        parts: Outcome = None
        try:
            parts = await work or []  # no answer (acks=0) leaves no gap in the row
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self.peer, error)
            self.close()
        except Exception:
            log.exception("a request of %s failed unexpectedly", self.peer)
            self.close()
        self._busy = False
        if callable(parts):
            parts(reply)
        elif parts is not None:
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

    def _answer_behind(self, parts: list[Part]) -> None:
        """Those that are owed go first."""
        reply = Reply(self, self._api_key, self._began)
        reply.parts = parts
        self._owed.append(reply)
        reply.held_bytes = sum(len(part) for part in parts if not isinstance(part, Slice))
        self._held_bytes += reply.held_bytes

    def _may_gather(self, parts: list[Part]) -> bool:
        """Whether further requests may be answered before this answer has gone."""
        few = len(parts) == 1 and len(self._ready) < ANSWERS_GATHERED_MAX
        if few and len(parts[0]) <= ANSWER_GATHERED_BYTES_MAX:
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
        if not self._ready:
            return
        ready, self._ready = self._ready, []
        if self._writer is not None:
            size = 0
            for part in ready:
                size += part.size if isinstance(part, Slice) else len(part)
            self._host.bytes_out += size
            self._writer.send(ready)
            if self._in_conversation and size <= SMALL_TALK_BYTES_MAX:
                self._host.awake.prolong()

    def _may_read(self) -> bool:
        assert self._writer is not None
        return (
            not self._busy
            and not self._queued
            and not self._starved
            and len(self._owed) < RESPONSES_OWED_MAX
            and self._held_bytes <= REQUESTS_HELD_BYTES_MAX
            and self._writer.unsent_bytes <= SEND_BUFFER_BYTES
        )

    def _regulate_reading(self) -> None:
        if self._transport is not None and self._may_read() is not self._reading:
            self._reading = not self._reading
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

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
