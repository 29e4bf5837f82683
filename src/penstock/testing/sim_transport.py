"""One end of a simulated TCP connection: calls a protocol as uvloop's transports do.

- `write` only queues a reference to the caller's buffer; bytes are copied when the loop comes round to
  `_flush`. A buffer that is changed after `write` therefore sends the changed bytes, as it may on uvloop.
- The peer's window bounds what is in the network. When the peer stops reading, bytes stay here, and the
  protocol is told to pause once they exceed the high-water mark.
- `close` sends what is queued, then ends the stream. A socket closed with unread input resets the
  connection instead, and so does one that receives bytes after it was closed: both as Linux does.
- A reset is noticed by reading or writing, not by an end that has paused reading and writes nothing.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.testing.sim_link import Pipe, Signal

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop

HIGH_WATER_BYTES = 64 * 1024
READ_HINT_BYTES = 64 * 1024  # what uvloop suggests to get_buffer

Protocol = asyncio.Protocol | asyncio.BufferedProtocol


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        loop: "SimLoop",
        context: contextvars.Context,
        outgoing: Pipe,
        incoming: Pipe,
        extra: dict[str, Any],
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self.context = context
        self.host = loop.current_host(context)
        self._outgoing = outgoing
        self._incoming = incoming
        incoming.target = self
        outgoing.source = self
        self._protocol: Protocol | None = None
        self._server: Any = None
        # Reading.
        self._inbox = bytearray()
        self._made = False
        self._paused = False
        self._eof_arrived = False
        self._reset_arrived = False
        self._delivery_due = False
        # Writing.
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._flush_due = False
        self._eof_queued = False
        self._eof_sent = False
        self._protocol_paused = False
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4
        # The end. closing: close() was called; lost: no more I/O; gone: the socket is closed.
        self._closing = False
        self._lost = False
        self._gone = False
        loop.network.register(self)

    # -- life -----------------------------------------------------------------------------------

    def begin(self, protocol: Protocol, server: Any = None) -> None:
        """Hand the connection to its protocol. Runs in the owner's context."""
        self._protocol = protocol
        self._server = server
        if server is not None:
            server.attach(self)
        if self._lost:  # aborted before it began
            return
        protocol.connection_made(self)
        self._made = True
        self._schedule_delivery()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._queue:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def die(self, *, lose_in_flight: bool) -> None:
        """The owner's process is gone: no callback, only the kernel's reset to the peer."""
        self._closing = self._lost = True
        self._queue.clear()
        if lose_in_flight:
            self._outgoing.lose()
        self._disconnect(Signal.RESET)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._queue.clear()
        self._queued_bytes = 0
        self._loop.call_soon(self._call_connection_lost, error, context=self.context)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        try:
            if self._protocol is not None and self._made:
                self._protocol.connection_lost(error)  # type: ignore[arg-type]
        finally:
            self._disconnect(Signal.RESET if self._inbox else Signal.EOF)
            if self._server is not None:
                self._server.detach(self)

    def _disconnect(self, last_word: Signal) -> None:
        if self._gone:
            return
        self._gone = True
        if not self._reset_arrived and (last_word is Signal.RESET or not self._eof_sent):
            self._outgoing.signal(last_word)
        self._incoming.remove()
        self._loop.network.unregister(self)

    def _fail(self, error: Exception, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._lose(error)

    # -- from the network -------------------------------------------------------------------------

    def receive(self, item: bytes | Signal) -> None:
        """Called by the pipe, outside the owner's process."""
        if self._gone:
            if isinstance(item, bytes) and self._outgoing.target is not None:
                self._outgoing.signal(Signal.RESET)
            return
        if self._reset_arrived:  # the connection is over, whatever else was still on the way
            return
        if isinstance(item, bytes):
            self._inbox += item
            self._schedule_delivery()
        elif item is Signal.EOF:
            self._eof_arrived = True
            self._schedule_delivery()
        elif item is Signal.RESET:
            self._reset_arrived = True
            if self._closing or self._queue:
                self._schedule_flush()
            self._schedule_delivery()
        elif self._queue:
            self._schedule_flush()

    def _schedule_delivery(self) -> None:
        if self._made and not self._delivery_due and self._may_read():
            self._delivery_due = True
            self._loop.call_soon(self._deliver, context=self.context)

    def _may_read(self) -> bool:
        return not (self._paused or self._closing)

    def _deliver(self) -> None:
        self._delivery_due = False
        while self._inbox and self._may_read():
            self._feed()
        if self._inbox or not self._may_read():
            return
        if self._reset_arrived:
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
        elif self._eof_arrived:
            self._eof_arrived = False
            self._on_eof()

    def _feed(self) -> None:
        protocol = self._protocol
        taken = 0
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                with memoryview(protocol.get_buffer(READ_HINT_BYTES)) as view:
                    taken = min(len(view), len(self._inbox))
                    if not taken:
                        raise RuntimeError("get_buffer() returned an empty buffer")
                    view[:taken] = self._inbox[:taken]
                self._consume(taken)
                protocol.buffer_updated(taken)
            elif isinstance(protocol, asyncio.Protocol):
                data = bytes(self._inbox[:READ_HINT_BYTES])
                self._consume(len(data))
                protocol.data_received(data)
            else:
                raise TypeError(f"{type(protocol).__name__} is no stream protocol")
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            self._fail(error, "a protocol failed on received bytes")

    def _consume(self, count: int) -> None:
        del self._inbox[:count]
        self._incoming.unread_bytes -= count
        # Only a sender that may be waiting for room needs to hear of it.
        if self._incoming.unread_bytes + count >= self._incoming.window_bytes // 2:
            self._outgoing.signal(Signal.WINDOW)

    def _on_eof(self) -> None:
        if self._protocol is None:
            return
        try:
            keep_open = self._protocol.eof_received()
        except Exception as error:
            self._fail(error, "eof_received() failed")
            return
        if not keep_open:
            self.close()

    # -- reading control --------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._may_read()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._schedule_delivery()

    # -- writing ----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        self._ensure_open()
        if self._eof_queued:
            raise RuntimeError("write() after write_eof()")
        if self._closing or not data:
            return
        view = memoryview(data).cast("B")
        self._queue.append(view)
        self._queued_bytes += len(view)
        if self._queued_bytes > self._high_bytes:
            self._flush()
            self._maybe_pause()
        else:
            self._schedule_flush()

    def _ensure_open(self) -> None:
        # asyncio's own transports ignore this, uvloop's refuse: code must stop at connection_lost.
        if self._gone:
            raise RuntimeError("the transport is closed: nothing may be written after connection_lost")

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_queued and not self._closing:
            self._eof_queued = True
            self._schedule_flush()

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._ensure_open()
        self._high_bytes, self._low_bytes = high, low
        self._maybe_pause()

    def _schedule_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._scheduled_flush, context=self.context)

    def _scheduled_flush(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        if self._lost:
            return
        if self._reset_arrived and (self._queue or self._closing):
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
            return
        parts: list[bytes] = []
        room = self._outgoing.room_bytes()
        while self._queue and room:
            view = self._queue.popleft()
            if len(view) > room:
                self._queue.appendleft(view[room:])
                view = view[:room]
            parts.append(bytes(view))
            room -= len(view)
        if parts:
            data = b"".join(parts)
            self._queued_bytes -= len(data)
            self._outgoing.send(data)
            self._maybe_resume()
        if not self._queue:
            if self._closing:
                self._lose(None)
            elif self._eof_queued and not self._eof_sent:
                self._eof_sent = True
                self._outgoing.signal(Signal.EOF)

    def _maybe_pause(self) -> None:
        if self._queued_bytes > self._high_bytes and not self._protocol_paused and self._protocol is not None:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def _maybe_resume(self) -> None:
        if self._protocol_paused and self._queued_bytes <= self._low_bytes and self._protocol is not None:
            self._protocol_paused = False
            self._protocol.resume_writing()

    # -- the rest of the interface ------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol  # type: ignore[assignment]

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "the connection has not begun"
        return self._protocol
