"""One connection as a stream of bytes, whatever protocol is spoken over it: what comes in, when to read, what goes out.

A protocol is a subclass. `_process` is called when bytes have come: it takes what it understands from `_view`, between
`_start` and `_end`, and says with `_make_room` how much it waits for. `_send` writes. `_may_take_more`, `_admit` and
`_gone` are asked and told what their names say.

Memory is bounded: a connection stops reading while its protocol owes too much, while too many bytes are unsent, and
where the rest of a large request does not fit into what all connections may hold (`receiving`). So are the answers that
wait in memory (`sending`), and the files that answers hold open: they are counted here. Nobody keeps the loop for long:
a busy client gives way to others after `TURN_BYTES_MAX`.

What writes is chosen by the listener (ADR 4): only it knows whether bytes may go past the transport.
"""

import asyncio
import mmap
from typing import cast

from penstock.core.limits import (
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_GROWN_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    SEND_BUFFER_BYTES,
    SMALL_TALK_BYTES_MAX,
    TURN_BYTES_MAX,
)
from penstock.core.session import Session
from penstock.server.hangup import hung_up
from penstock.server.owing import Host, Listening
from penstock.server.writer import Part, Writer


class Stream(asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, host: Host, listener: Listening) -> None:
        self.loop = loop
        self._host = host
        self._listener = listener
        self.session = Session(listener.name)
        self._transport: asyncio.Transport | None = None
        self._writer: Writer | None = None
        self._budget = host.receive_budget
        self._buffer: bytearray | mmap.mmap = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = self._empty = memoryview(self._buffer)  # the second: what a turn may fill of it
        self._starved = False  # waits for room to receive more
        self._start = 0  # of the first byte not yet taken
        self._end = 0  # of the last byte received
        self._busy = False  # what was taken last is still worked on: nothing else is taken
        self._keeps_frame = False  # and is still in the buffer
        self._queued = False  # waits for its turn: nothing is read meanwhile
        self._reading = True
        self._in_conversation = False  # small requests, as opposed to bulk
        # Slices of files in answers that have not gone: counted for all connections together, too.
        self._lent = 0
        self._kept_bytes = 0  # of answers in memory, as they were counted last
        self.promised_bytes = 0  # of a large one that is being made
        self._turn_bytes = 0  # received since it last gave way to others
        self.last_active = loop.time()  # when it last sent something, or had its turn
        self._seen_sent_bytes = 0  # and when that was last seen to be more
        self._last_taken = 0.0

    @property
    def peer(self) -> str:
        return self.session.peer

    def has_left(self) -> bool:
        """Whether its client is gone, as far as the kernel knows: nothing may be read from it at the moment."""
        return self._transport is None or hung_up(self._transport)

    def is_idle(self, since: float) -> bool:
        """Whether it sent nothing, and took nothing of its answers: a large one may be read for longer."""
        sent = self.sent_bytes()
        if sent != self._seen_sent_bytes:
            self._seen_sent_bytes, self._last_taken = sent, self.loop.time()
        return max(self.last_active, self._last_taken) < since

    # -- what a protocol does ------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Take what has arrived, as far as it is whole."""
        raise NotImplementedError

    def _may_take_more(self) -> bool:
        """Whether the client may ask for more, although not all is answered."""
        return True

    def owes_too_much(self) -> bool:
        """Whether nothing is read since its requests wait, and some stand behind others."""
        return False

    def _admit(self, wanted: int) -> None:
        """A large request of `wanted` bytes has begun: ProtocolError where it would be refused for its size."""

    def _owed_slices(self) -> int:
        """Of files, in answers that are there and wait for others."""
        return 0

    def _owed_bytes(self) -> int:
        """In memory, of such answers."""
        return 0

    def _gone(self) -> None:
        """The connection is lost: nothing can be answered any more."""

    # -- asyncio.BufferedProtocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.session.peer = str(peer[0]) if peer else "?"
        self._writer = self._listener.writer(transport, self._drained)
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
        if RECEIVE_BUFFER_KEPT_BYTES < len(self._buffer) > self._end:  # else all of it has come
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
        self.session.is_lost = True
        self._start = self._end = 0
        self._use_buffer(bytearray())
        if not self._keeps_frame:  # else what it received is still there, until the work on it ends
            self._budget.release(self)
        self._gone()
        self._count_unsent()
        self._host.send_budget.leave(self)
        self._host.closed(self)

    def pause_writing(self) -> None:
        """Nothing: `_may_read` looks at the unsent bytes itself."""

    def resume_writing(self) -> None:
        if self._writer is not None:
            self._writer.resume()
        self._drained()

    # -- turns and reading ---------------------------------------------------------------------------------------

    def _queue_up(self) -> None:
        """What the client asks for is dear: everybody else has a turn first."""
        if not self._queued:
            self._queued = True
            self._host.queue(self)

    def take_turn(self) -> None:
        self._queued = False
        self.last_active = self.loop.time()
        self._go_on()

    def mute(self, until: float) -> None:
        """Take nothing from the client before then (loop time); what it is owed is sent."""
        if until > self.session.muted_until:
            self.session.muted_until = until
            self.loop.call_at(until, self._unmute, until)
            self._regulate_reading()

    def _unmute(self, until: float) -> None:
        if self.session.muted_until == until:  # or it was muted for longer meanwhile
            self.session.muted_until = 0.0
            self._go_on()

    def _go_on(self) -> None:
        if self._transport is not None:
            self._drained()
            self._regulate_reading()

    def _may_read(self) -> bool:
        assert self._writer is not None
        return (
            not self._busy
            and not self._queued
            and not self._starved
            and not self.session.muted_until
            and self._writer.unsent_bytes <= SEND_BUFFER_BYTES
            and self._may_take_more()
        )

    def unwatched_fd(self) -> int:
        """Of the socket, where nobody would see that its client has left; else -1.

        Not while a producer is only kept waiting, nor while more has come behind what is worked on: what was sent
        before it left, as with acks=0, is taken first.
        """
        works_on = self._busy and not self._keeps_frame and self._start == self._end
        waits = self._queued and not self.session.produces
        if self._transport is None or self._reading or not (works_on or waits or not self._may_take_more()):
            return -1
        own = self._transport.get_extra_info("socket")
        return -1 if own is None else int(own.fileno())

    def _regulate_reading(self) -> None:
        if self._transport is not None and self._may_read() is not self._reading:
            self._reading = not self._reading
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _drained(self) -> None:
        """The client took what it was owed: go on with what it sent meanwhile."""
        if self._lent or self._kept_bytes:
            self._count_unsent()
        if self._transport is not None and not self._busy and self._may_read():
            self._process()

    # -- the buffer ----------------------------------------------------------------------------------------------

    def _make_room(self, wanted: int) -> None:
        """Keep space behind the received bytes for the rest of what is awaited, and no more memory than is needed."""
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
        self._admit(wanted)
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
        if self._keeps_frame or self._queued or self._start == self._end:
            return -1  # it is not waited for: what came is being worked on, or waits for its turn
        return self._end - self._start

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
        if self._start == self._end and not self._keeps_frame and len(self._buffer) > RECEIVE_BUFFER_BYTES:
            self._shrink(RECEIVE_BUFFER_BYTES)

    # -- out -----------------------------------------------------------------------------------------------------

    def _send(self, parts: list[Part]) -> None:
        writer = self._writer
        if writer is None:
            return
        size = writer.send(parts)
        self._host.bytes_out += size
        if writer.unsent_bytes or self._lent or self._kept_bytes:
            self._count_unsent()
        if self._in_conversation and size <= SMALL_TALK_BYTES_MAX:
            self._host.idle_poll.prolong()

    def _count_unsent(self) -> None:
        unsent = 0 if self._writer is None else self._writer.unsent_slices
        lent, self._lent = self._lent, unsent + self._owed_slices()
        self._host.descriptors.lent += self._lent - lent
        kept = self.kept_bytes()
        if kept or self._kept_bytes:
            self._kept_bytes = kept
            self._host.send_budget.hold(self, kept)

    def promise(self, size_bytes: int) -> None:
        self.promised_bytes += size_bytes
        self._kept_bytes = self.kept_bytes()

    def kept_bytes(self) -> int:
        written = 0 if self._writer is None else self._writer.kept_bytes
        return self.promised_bytes + self._owed_bytes() + written

    def sent_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.sent_bytes

    def unsent_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.unsent_bytes

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
