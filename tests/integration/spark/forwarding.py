"""An address that leads to a broker and can go away without it, as one of several bootstrap brokers may."""

import contextlib
import socket
import threading

HOST = "127.0.0.1"
_CHUNK_BYTES = 65_536


class Forwarding:
    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._port = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Where it was before."""
        listener = socket.create_server((HOST, self._port))
        self._port = listener.getsockname()[1]
        self._open = [listener]
        self._run(self._accept, listener)

    def stop(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self, target: object, *sockets: socket.socket) -> None:
        thread = threading.Thread(target=target, args=sockets, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                try:
                    broker = socket.create_connection((HOST, self._broker_port))
                except OSError:  # it is down
                    client.close()
                    continue
                self._open.append(broker)
                self._run(self._pass_on, client, broker)
                self._run(self._pass_on, broker, client)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
