"""Who died is missed at once: a process that is gone leaves a closed port behind (ADR 13).

The controller keeps a connection to every broker, and every broker one to the controller. When it breaks, and the port
is closed where it was open before, the registration is taken back, as the end of the session would do seconds later.
What does not answer, sleeps or cannot be reached is left to its session.
"""

import asyncio
import logging

from penstock.coordination.image import ImageDelta
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import CoordinationError

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
# Between two tries to reach one that does not answer, or whose port was never seen open.
_RETRY_SECONDS = 1.0
# A connection that did not last longer is not begun anew at once: its end may be all that the other has to say.
_SHORT_SECONDS = 0.1


class _Line(asyncio.Protocol):
    """A connection over which nothing is said."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class FailureDetector:
    def __init__(self, node: int, metadata: MetadataStore) -> None:
        self._node = node
        self._metadata = metadata
        self._news = asyncio.Event()
        # By id and epoch: who comes back is another one.
        self._watched: dict[tuple[int, int], asyncio.Task[None]] = {}

    def image_changed(self, delta: ImageDelta) -> None:
        if delta.brokers:
            self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                wanted = {
                    (registration.id, registration.epoch): registration for registration in self._wanted()
                }
                for key in self._watched.keys() - wanted.keys():
                    self._watched.pop(key).cancel()
                for key in wanted.keys() - self._watched.keys():
                    self._watched[key] = tasks.create_task(
                        self._watch(wanted[key]), name=f"failure_detector for {key[0]}"
                    )
                await self._news.wait()
                self._news.clear()

    def _wanted(self) -> list[BrokerRegistration]:
        image = self._metadata.image
        return [
            broker
            for broker in image.brokers.values()
            if broker.id != self._node and image.controller in (self._node, broker.id)
        ]

    async def _watch(self, registration: BrokerRegistration) -> None:
        """Until its registration is gone: then this is cancelled."""
        loop = asyncio.get_running_loop()
        was_open = False
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    transport, line = await loop.create_connection(
                        _Line, registration.host, registration.port
                    )
            except ConnectionRefusedError:
                if was_open:
                    await self._expel(registration)
            except (OSError, ValueError, OverflowError):
                pass  # a timeout, no way to it, or no address at all
            else:
                was_open = True
                try:
                    await line.lost
                finally:
                    transport.close()
                if loop.time() - began < _SHORT_SECONDS:
                    await asyncio.sleep(_SHORT_SECONDS)
                continue
            await asyncio.sleep(_RETRY_SECONDS)

    async def _expel(self, registration: BrokerRegistration) -> None:
        try:
            if await self._metadata.expel(registration):
                logger.warning(
                    "broker %d is gone: nobody listens on %s:%d any more",
                    registration.id,
                    registration.host,
                    registration.port,
                )
        except CoordinationError as error:
            logger.info("broker %d is gone, which cannot be written down: %s", registration.id, error)
