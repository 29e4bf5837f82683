"""`/metrics` and `/healthz` on the console port: a few lines of HTTP, since the broker needs no web framework."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from penstock.core.limits import HTTP_CONNECTIONS_MAX, HTTP_SECONDS_MAX
from penstock.server.listener import bound_port

logger = logging.getLogger(__name__)

_HEAD_BYTES_MAX = 16 * 1024

Answer = tuple[HTTPStatus, str, bytes]  # status, content type, body
Route = Callable[[], Awaitable[Answer]]


class HttpServer:
    def __init__(self, routes: dict[str, Route], seconds_max: float = HTTP_SECONDS_MAX) -> None:
        self._routes = routes
        self._seconds_max = seconds_max
        self.connections = 0
        # The oldest first: those that have sent no whole request yet, and those that have not read their answer.
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self._unread: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_BYTES_MAX)
        return bound_port(self._server, host, port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection: scrapes are seconds apart."""
        if self.connections >= HTTP_CONNECTIONS_MAX and not self._make_room():
            writer.transport.abort()
            return
        self.connections += 1
        self._silent[writer] = None
        try:
            async with asyncio.timeout(self._seconds_max):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                writer.writelines(_response(head, *await self._answer(head)))
                self._unread[writer] = None
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            logger.debug("an HTTP client sent no whole request, did not read the answer, or left")
        finally:
            self.connections -= 1
            self._silent.pop(writer, None)
            self._unread.pop(writer, None)
            writer.transport.abort()  # what was not read by now never will be

    def _make_room(self) -> bool:
        """Connections that say nothing, or do not read, must not keep probes out: the oldest goes."""
        for idle in self._silent, self._unread:
            if idle:
                oldest = next(iter(idle))
                del idle[oldest]
                oldest.transport.abort()
                return True
        return False

    async def _answer(self, head: bytes) -> Answer:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n"
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(sorted(self._routes))
            return HTTPStatus.NOT_FOUND, "text/plain", f"nothing here; try {known}\n".encode()
        return await route()


def _response(request: bytes, status: HTTPStatus, content_type: str, body: bytes) -> list[bytes]:
    """In parts: a page is not copied for each who reads it."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return [head.encode()] if request.startswith(b"HEAD ") else [head.encode(), body]
