"""What the console port answers without the console: is the broker well, and its metrics."""

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.server.http import Answer, HttpServer
from penstock.server.metrics_partitions import CONTENT_TYPE, render
from penstock.server.shared import Shared

if TYPE_CHECKING:
    from penstock.server.broker import Broker


class Console:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._metrics: object | None = None
        self._pages = Shared(self._rendered)
        self._server = HttpServer({"/metrics": self._render_metrics, "/healthz": self._health})

    async def start(self, host: str, port: int) -> int:
        return await self._server.start(host, port)

    async def close(self) -> None:
        await self._server.close()

    async def _render_metrics(self) -> Answer:
        return HTTPStatus.OK, CONTENT_TYPE, await self._pages.next()

    async def _rendered(self) -> bytes:
        head = await self._broker.in_thread(self._head)
        return head + await render(self._broker.table.partitions())

    def _head(self) -> bytes:
        """In a thread, as the import, too, takes a while, which nobody needs at a start."""
        from penstock.server.metrics import BrokerMetrics  # noqa: PLC0415

        if not isinstance(self._metrics, BrokerMetrics):
            self._metrics = BrokerMetrics(self._broker)
        return self._metrics.render()

    async def _health(self) -> Answer:
        offline = [f"{p.topic}-{p.index}" for p in self._broker.table.partitions() if p.log.failed]
        status = HTTPStatus.SERVICE_UNAVAILABLE if offline else HTTPStatus.OK
        said = {
            "status": "offline partitions" if offline else "disk full" if self._broker.disk.is_full else "ok",
            "version": __version__,
            "node": self._broker.services.node.id,
            "topics": len(self._broker.table.all_topics()),
            "offline": offline[:20],
            "archive_alarms": self._broker.upkeep.archive.alarms()[:20],
        }
        return status, "application/json", json.dumps(said).encode() + b"\n"
