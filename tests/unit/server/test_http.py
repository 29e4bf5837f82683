"""The console port: bounded in connections, and in the time it gives each."""

import asyncio
import contextlib
from http import HTTPStatus

import pytest
from tests.unit.waiting import until

from penstock.core.limits import HTTP_CONNECTIONS_MAX
from penstock.server import http
from penstock.server.http import Answer, HttpServer

LARGE = bytes(64 * 1024 * 1024)  # more than sockets buffer
PAGE = bytes(16 * 1024 * 1024)


async def _large() -> Answer:
    return HTTPStatus.OK, "text/plain", LARGE


async def _page() -> Answer:
    return HTTPStatus.OK, "text/plain", PAGE


async def _small() -> Answer:
    return HTTPStatus.OK, "text/plain", b"well"


async def _until_free(server: HttpServer) -> None:
    async with asyncio.timeout(60):
        while server.connections:  # noqa: ASYNC110 - the other side makes it true
            await asyncio.sleep(0.01)


def test_a_client_that_does_not_read_is_let_go() -> None:
    async def story() -> None:
        server = HttpServer({"/": _large}, seconds_max=0.2)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.readexactly(1), 60)
        await _until_free(server)
        async with asyncio.timeout(60):
            got = 0
            try:
                while piece := await reader.read(1 << 20):
                    got += len(piece)
            except ConnectionResetError:
                pass
        assert got < len(LARGE), "the rest is not kept for it"
        writer.close()
        await server.close()

    asyncio.run(story())


async def _ask(port: int, method: bytes = b"GET") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(method + b" / HTTP/1.1\r\n\r\n")
    try:
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


async def _until_full(server: HttpServer) -> None:
    async with asyncio.timeout(60):
        while server.connections < HTTP_CONNECTIONS_MAX:  # noqa: ASYNC110 - the other side makes it true
            await asyncio.sleep(0.01)


def test_connections_are_limited() -> None:
    async def story() -> None:
        server = HttpServer({"/": _waiting})
        port = await server.start("127.0.0.1", 0)
        asking = [asyncio.create_task(_ask(port)) for _ in range(HTTP_CONNECTIONS_MAX)]
        await _until_full(server)
        async with asyncio.timeout(60):
            while server._silent:  # noqa: ASYNC110 - the other side makes it true
                await asyncio.sleep(0.01)
        reader, more = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 60) == b"", "turned away at once"
        more.close()
        answer.set()
        assert all(reply.endswith(b"well") for reply in await asyncio.gather(*asking))
        await _until_free(server)
        assert (await _ask(port)).endswith(b"well")
        await server.close()

    answer = asyncio.Event()

    async def _waiting() -> Answer:
        await answer.wait()
        return await _small()

    asyncio.run(story())


def test_silent_connections_keep_no_probe_out() -> None:
    async def story() -> None:
        server = HttpServer({"/": _small})
        port = await server.start("127.0.0.1", 0)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(HTTP_CONNECTIONS_MAX)]
        await _until_full(server)
        for _ in range(3):
            idle.append(await asyncio.open_connection("127.0.0.1", port))
            assert (await _ask(port)).endswith(b"well")
        assert server.connections <= HTTP_CONNECTIONS_MAX
        for _, writer in idle:
            writer.close()
        await _until_free(server)
        await server.close()

    asyncio.run(story())


def test_scrapers_that_do_not_read_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 8
    monkeypatch.setattr(http, "HTTP_CONNECTIONS_MAX", few)

    async def story() -> None:
        server = HttpServer({"/": _small, "/metrics": _page})
        port = await server.start("127.0.0.1", 0)
        scraping = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(few)]
        for _, writer in scraping:
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: server.connections == few and not server._silent)
        for _ in range(3):
            assert (await _ask(port)).endswith(b"well")
        assert server.connections <= few
        for _, writer in scraping:
            writer.transport.abort()
        await _until_free(server)
        await server.close()

    asyncio.run(story())


def test_head_has_no_body() -> None:
    async def story() -> None:
        server = HttpServer({"/": _small})
        port = await server.start("127.0.0.1", 0)
        head, _, body = (await _ask(port, b"HEAD")).partition(b"\r\n\r\n")
        assert b"Content-Length: 4" in head
        assert body == b""
        await server.close()

    asyncio.run(story())
