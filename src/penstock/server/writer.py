"""Sending responses: bytes and slices of files, in order, straight to the socket.

Writes bypass the transport: uvloop would hold them back to the end of the loop's turn, and knows no sendfile. A slice
goes from the page cache to the socket without passing through this process. Where there is no socket (in the
simulation) the transport is used and slices are read.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from penstock.storage.segment import Slice

Part = bytes | bytearray | memoryview | Slice

# Below this, one read and one joined write beat two system calls.
_SENDFILE_BYTES_MIN = 32 * 1024
# As much as one sendfile call may take before others on the loop get their turn.
_SENDFILE_BYTES_MAX = 4 * 1024 * 1024


def set_buffers(fd: int, receive_bytes: int, send_bytes: int) -> None:
    """Size the kernel's buffers of a connection; a negative size leaves that to the kernel."""
    if receive_bytes < 0 and send_bytes < 0:
        return
    with socket.socket(fileno=os.dup(fd)) as own:
        for option, size in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size >= 0:
                own.setsockopt(socket.SOL_SOCKET, option, size)


class TransportWriter:
    """For transports without a socket: everything is read and handed over."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def send(self, parts: list[Part]) -> None:
        self._transport.write(
            b"".join(p.file.pread(p.size, p.position) if isinstance(p, Slice) else p for p in parts)
        )

    def close(self) -> None:
        """Nothing of ours to close."""


class SocketWriter:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        fd: int,
        drained: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._fd = fd
        self._drained = drained
        self._queue: deque[Part] = deque()  # what the socket did not take yet
        self._own: socket.socket | None = (
            None  # a second handle: the loop refuses to watch the transport's own
        )
        self.unsent_bytes = 0

    def send(self, parts: list[Part]) -> None:
        if self._queue:
            self._keep(parts)
            return
        data = _joined(parts)
        if data is None:
            self._keep(parts)
            self._pump()
            return
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._transport.abort()
            return
        if written < len(data):
            self._keep([memoryview(data)[written:]])
            self._watch()

    def _keep(self, parts: list[Part]) -> None:
        for part in parts:
            self.unsent_bytes += part.size if isinstance(part, Slice) else len(part)
        self._queue.extend(parts)

    def _watch(self) -> None:
        if self._own is None:
            self._own = socket.socket(fileno=os.dup(self._fd))
        self._loop.add_writer(self._own, self._resume)

    def _resume(self) -> None:
        assert self._own is not None
        self._loop.remove_writer(self._own)
        self._pump()
        if not self._queue:
            self._drained()

    def _pump(self) -> None:
        """Send from the queue until it is empty or the socket is full."""
        if self._own is None:
            self._own = socket.socket(fileno=os.dup(self._fd))
        queue, own = self._queue, self._own
        try:
            while queue:
                part = queue.popleft()
                sent, rest = _send_one(own, part, more=bool(queue))
                self.unsent_bytes -= sent
                if rest is not None:
                    queue.appendleft(rest)
        except BlockingIOError:
            queue.appendleft(part)
            self._watch()
        except OSError:
            self.close()
            self._transport.abort()

    def close(self) -> None:
        self._queue.clear()
        self.unsent_bytes = 0
        if self._own is not None:
            self._loop.remove_writer(self._own)
            self._own.close()
            self._own = None


def _joined(parts: list[Part]) -> bytes | None:
    """All parts as one piece of bytes; None when a slice is large enough for sendfile."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    pieces: list[bytes | bytearray | memoryview] = []
    for part in parts:
        if isinstance(part, Slice):
            if part.size >= _SENDFILE_BYTES_MIN:
                return None
            pieces.append(part.file.pread(part.size, part.position))
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
        raise OSError("the file ended before the slice did")
    return sent, Slice(file, position + sent, size - sent) if sent < size else None
