"""A TCP proxy that cuts connections in the middle of Produce requests.

Each cut falls on one of the two moments that matter to an idempotent producer: the broker has appended but
the acknowledgement is lost (the retry is a duplicate), or the broker has seen half a request (the retry is
the first). The broker's own port is replaced by the proxy's in everything it answers, so that clients which
learn it from Metadata keep coming through here.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from typing import Self

HOST = "127.0.0.1"
PRODUCE = 0
FIRST_CUT_AT = 4
CUT_EVERY = 7


class ConnectionCutError(Exception):
    """This connection ends here, by plan or because a side closed."""


class CuttingProxy:
    """`with CuttingProxy(port, cuts=8) as proxy: proxy.bootstrap`; `proxy.made` says how many cuts fell."""

    def __init__(self, broker_port: int, cuts: int) -> None:
        self._broker_port = broker_port
        self._cuts = cuts
        self._produces = itertools.count(1)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._announced = HOST.encode() + struct.pack(">i", broker_port)
        self._replacement = HOST.encode() + struct.pack(">i", self.port)
        self.made = 0

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._close(self._listener)
        with self._lock:
            sockets = list(self._open)
        for connection in sockets:
            self._close(connection)
        for thread in self._threads:
            thread.join()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection((HOST, self._broker_port))
            except OSError:
                return
            with self._lock:
                self._open.update((client, broker))
            doomed: set[int] = set()
            self._start(self._run, self._upstream, client, broker, doomed)
            self._start(self._run, self._downstream, broker, client, doomed)

    def _run(self, pump: object, source: socket.socket, sink: socket.socket, doomed: set[int]) -> None:
        try:
            while True:
                pump(source, sink, doomed)  # type: ignore[operator]
        except (OSError, ConnectionCutError):
            self._close(source)
            self._close(sink)

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _upstream(self, client: socket.socket, broker: socket.socket, doomed: set[int]) -> None:
        """Pass one request; on its turn cut it in half, or mark its answer to be lost."""
        frame = read_frame(client)
        api_key, _version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if api_key == PRODUCE:
            number = next(self._produces)
            if number >= FIRST_CUT_AT and (number - FIRST_CUT_AT) % CUT_EVERY == 0 and self._take_cut():
                if self.made % 2:
                    doomed.add(correlation_id)
                else:
                    broker.sendall(frame[: len(frame) // 2])
                    raise ConnectionCutError
        broker.sendall(frame)

    def _downstream(self, broker: socket.socket, client: socket.socket, doomed: set[int]) -> None:
        frame = read_frame(broker)
        if struct.unpack_from(">i", frame, 4)[0] in doomed:
            raise ConnectionCutError
        client.sendall(frame.replace(self._announced, self._replacement))

    def _take_cut(self) -> bool:
        with self._lock:
            if self.made == self._cuts:
                return False
            self.made += 1
            return True


def read_frame(source: socket.socket) -> bytes:
    """One length-prefixed frame, its prefix included."""
    prefix = _read(source, 4)
    return prefix + _read(source, struct.unpack(">i", prefix)[0])


def _read(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionCutError
        data += part
    return bytes(data)
