"""Sending responses: bytes and slices of files, in order, straight to the socket.

Writes bypass the transport: uvloop would hold them back to the end of the loop's turn, and knows no sendfile. A slice
goes from the page cache to the socket without passing through this process. Where bytes may not go past the transport
(it encrypts them, or there is no socket, as in the simulation) the transport is used, and slices are read when it has
room for them, as a socket does. The listener knows which of the two it is.

A slice that cannot be read, or whose file was cut meanwhile, ends the connection: a client that got less than it was
announced would take the next answer for the rest.
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from penstock.core.clock import stopwatch
from penstock.core.errors import StorageError
from penstock.core.limits import LARGE_ANSWER_BYTES, SLICE_BYTES_MIN
from penstock.storage.segment import Slice

logger = logging.getLogger(__name__)

Part = bytes | bytearray | memoryview | Slice

_CUT = "the file ended before the slice did"

# As much as one sendfile call may take before others on the loop get their turn.
_SENDFILE_BYTES_MAX = 4 * 1024 * 1024
# So long large answers are sent in one turn of the loop.
_SENDING_SECONDS = 0.002
# As much as a transport is given at once: little, so that what waits for room waits as a place in a file.
_PIECE_BYTES = 512


def set_buffers(fd: int, receive_bytes: int, send_bytes: int) -> None:
    """Size the kernel's buffers of a connection; a negative size leaves that to the kernel."""
    if receive_bytes < 0 and send_bytes < 0:
        return
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as own:  # or the kernel's sizes will do
        for option, size in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size >= 0:
                own.setsockopt(socket.SOL_SOCKET, option, size)


class Writer(Protocol):
    """Sends over one connection, in order."""

    @property
    def unsent_bytes(self) -> int: ...
    @property
    def unsent_slices(self) -> int:
        """Of files that stay open until they have gone."""
        ...

    @property
    def kept_bytes(self) -> int:
        """In memory. A piece of it counts whole until its last byte has gone: so long it is kept."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Of what had to wait, ever."""
        ...

    def send(self, parts: list[Part]) -> int:
        """Now, or later what waits; returns how many bytes they are."""
        ...

    def resume(self) -> None:
        """The transport has room again."""
        ...

    def end(self) -> None:
        """Break off: nothing more is sent."""
        ...

    def close(self) -> None: ...


class TransportWriter:
    """For transports that must not be passed by: a slice is read piece by piece, each when all before it has gone."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # `resume` is called when everything has gone
        self._queue: deque[Part] = deque()
        self._queued_bytes = self._queued_in_files = self._handed_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def kept_bytes(self) -> int:
        return self.unsent_bytes - self._queued_in_files

    @property
    def sent_bytes(self) -> int:
        return self._handed_bytes - self._transport.get_write_buffer_size()

    @property
    def unsent_slices(self) -> int:
        return slices_in(self._queue)

    def send(self, parts: list[Part]) -> int:
        size = size_of(parts)
        self._queued_bytes += size
        self._queued_in_files += size_in_files(parts)
        self._queue.extend(parts)
        self.resume()
        return size

    def resume(self) -> None:
        """Hand over as much as the transport has room for."""
        queue, transport = self._queue, self._transport
        try:
            while queue and not transport.get_write_buffer_size() and not transport.is_closing():
                part = queue.popleft()
                if isinstance(part, Slice):
                    file, position, size = part
                    taken = min(size, _PIECE_BYTES)
                    if taken < size:
                        queue.appendleft(Slice(file, position + taken, size - taken))
                    part = _read(Slice(file, position, taken))
                    self._queued_in_files -= taken
                self._queued_bytes -= len(part)
                self._handed_bytes += len(part)
                transport.write(part)
        except StorageError as error:
            _give_up(self, error)

    def end(self) -> None:
        self.close()
        self._transport.abort()  # after that it is closing, and is given nothing more

    def close(self) -> None:
        self._queue.clear()
        self._queued_bytes = self._queued_in_files = 0


class SendingTurn:
    """Large answers of all connections: those that find a turn of the loop full wait for the next one, in a row."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._full_at: float | None = None  # of this turn of the loop
        self._waiting: dict[SocketWriter, None] = {}

    def pump(self, writer: "SocketWriter") -> None:
        """Now, or when those before it have had their turn."""
        if self._full_at is None:
            self._full_at = stopwatch() + _SENDING_SECONDS
            self._loop.call_soon(self._next)
        if self._waiting or stopwatch() >= self._full_at:
            self._waiting[writer] = None
        else:
            writer.pump()

    def _next(self) -> None:
        self._full_at = None
        if not self._waiting:
            return
        self._full_at = stopwatch() + _SENDING_SECONDS
        self._loop.call_soon(self._next)
        while self._waiting and stopwatch() < self._full_at:
            writer = next(iter(self._waiting))
            del self._waiting[writer]
            writer.resume_turn()

    def forget(self, writer: "SocketWriter") -> None:
        self._waiting.pop(writer, None)


class SocketWriter:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        fd: int,
        drained: Callable[[], None],
        turn: SendingTurn | None = None,
    ) -> None:
        self._loop = loop
        self._turn = turn or SendingTurn(loop)
        self._transport = transport
        self._fd = fd
        self._drained = drained
        self._queue: deque[Part] = deque()  # what the socket did not take yet
        # A second handle: the loop refuses to watch the transport's own.
        self._own: socket.socket | None = None
        self.unsent_bytes = self.unsent_slices = self.kept_bytes = self.sent_bytes = 0

    def resume(self) -> None:
        """Nothing: no byte goes through the transport."""

    def send(self, parts: list[Part]) -> int:
        try:
            if self._queue:
                return self._keep(parts)
            only = parts[0] if len(parts) == 1 else None
            data = only if isinstance(only, bytes) else _joined(parts)
            size = self._keep(parts) if data is None else len(data)
        except StorageError as error:
            _give_up(self, error)
            return 0
        if data is None:
            self._turn.pump(self)
            return size
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._transport.abort()
            return size
        if written < size:
            self._keep([memoryview(data)[written:]])
            try:
                self._watch()
            except OSError as error:  # no descriptor is left to wait with
                _give_up(self, error)
        return size

    def _keep(self, parts: list[Part]) -> int:
        kept = small_slices_read(parts)
        size = size_of(kept)
        self.unsent_bytes += size
        self.unsent_slices += slices_in(kept)
        self.kept_bytes += sum(map(_memory_of, kept))
        self._queue.extend(kept)
        return size

    def _watch(self) -> None:
        self._loop.add_writer(self._handle(), self._resume)

    def _handle(self) -> socket.socket:
        if self._own is None:
            self._own = socket.socket(fileno=os.dup(self._fd))
        return self._own

    def _resume(self) -> None:
        assert self._own is not None
        self._loop.remove_writer(self._own)
        self._turn.pump(self)
        if not self._queue:
            self._drained()

    def resume_turn(self) -> None:
        self.pump()
        if not self._queue:
            self._drained()

    def pump(self) -> None:
        """Send from the queue until it is empty or the socket is full."""
        queue = self._queue
        try:
            own = self._handle()
            while queue:
                part = queue.popleft()
                sent, rest = _send_one(own, part, more=bool(queue))
                self.unsent_bytes -= sent
                self.sent_bytes += sent
                if rest is not None:
                    queue.appendleft(rest)
                elif isinstance(part, Slice):
                    self.unsent_slices -= 1
                else:
                    self.kept_bytes -= _memory_of(part)
        except BlockingIOError:
            queue.appendleft(part)
            self._watch()
        except OSError as error:
            _give_up(self, error)

    def end(self) -> None:
        """At once: until the loop closes the socket, answers to what was asked behind this would go into the gap."""
        self.close()
        # Never sent, nor is what comes behind it: whoever sends finds a queue, and joins it.
        self._queue.append(b"")
        self._transport.abort()

    def close(self) -> None:
        self._turn.forget(self)
        self._queue.clear()
        self.unsent_bytes = self.unsent_slices = self.kept_bytes = 0
        if self._own is not None:
            self._loop.remove_writer(self._own)
            self._own.close()
            self._own = None


def size_of(parts: list[Part]) -> int:
    return sum(part.size if isinstance(part, Slice) else len(part) for part in parts)


def size_in_files(parts: list[Part]) -> int:
    return sum(part.size for part in parts if isinstance(part, Slice))


def _memory_of(part: Part) -> int:
    """Of a view all that is behind it: what has gone of it is not free before the rest."""
    if isinstance(part, Slice):
        return 0
    return memoryview(part.obj).nbytes if isinstance(part, memoryview) else len(part)


def slices_in(parts: Iterable[Part]) -> int:
    return sum(isinstance(part, Slice) for part in parts)


def small_slices_read(parts: list[Part]) -> list[Part]:
    """What is to wait, with small slices as their bytes: each other one holds a file open until it has gone."""
    return [
        _read(part) if isinstance(part, Slice) and part.size < SLICE_BYTES_MIN else part for part in parts
    ]


def _read(part: Slice) -> bytes:
    data = part.file.pread(part.size, part.position)
    if len(data) < part.size:
        raise StorageError(_CUT)
    return data


def _give_up(writer: Writer, error: Exception) -> None:
    """Nothing is left out of the row: whoever waits for it finds the connection closed, and asks again."""
    logger.info("a response cannot be sent, so its connection is closed: %s", error)
    writer.end()


def _joined(parts: list[Part]) -> bytes | None:
    """All parts as one piece of bytes; None when a slice is large enough for sendfile, or a part to be copied."""
    pieces: list[bytes | bytearray | memoryview] = []
    for part in parts:
        if isinstance(part, Slice):
            # Below this, one read and one joined write beat two system calls.
            if part.size >= SLICE_BYTES_MIN:
                return None
            pieces.append(_read(part))
        elif len(part) > LARGE_ANSWER_BYTES:
            return None
        else:
            pieces.append(part)
    return b"".join(pieces)


def _send_one(own: socket.socket, part: Part, *, more: bool) -> tuple[int, Part | None]:
    """Send what the socket takes of one part; returns how much, and what is left of it."""
    if not isinstance(part, Slice):
        sent = own.send(part, socket.MSG_MORE if more else 0)
        return sent, memoryview(part)[sent:] if sent < len(part) else None
    file, position, size = part
    sent = os.sendfile(own.fileno(), file.fileno(), position, min(size, _SENDFILE_BYTES_MAX))
    if sent == 0:
        raise OSError(_CUT)
    return sent, Slice(file, position + sent, size - sent) if sent < size else None
