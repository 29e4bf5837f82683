"""Session after session with the coordination store: when one is over the broker registers again in the next.

Until then clients are served: what they produce and fetch needs no coordination, Metadata comes from the image as it
was. Only what has to be written there is refused, with an error that tells clients to try again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.coordination.metadata import MetadataStore
from penstock.coordination.nodes import BrokerRegistration
from penstock.coordination.tree import CoordinationError, Tree
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5

Connect = Callable[[], Awaitable[Tree]]


class SessionKeeper:
    def __init__(
        self,
        metadata: MetadataStore,
        connect: Connect,
        registration: BrokerRegistration,
        renewed: Callable[[], Awaitable[None]],
    ) -> None:
        """`renewed` is called when a new session has begun and the image is up to date again."""
        self._metadata = metadata
        self._connect = connect
        self._registration = registration
        self._renewed = renewed

    async def run(self) -> None:
        """Follow the metadata until cancelled."""
        while True:
            try:
                await self._metadata.follow()
            except CoordinationError as error:
                log.warning("the session with the coordination store is over: %s", error)
            await self._renew()

    async def _renew(self) -> None:
        while True:
            try:
                with suppress(CoordinationError):
                    await self._metadata.tree.close()
                self._metadata.attach(await self._connect())
                await self._metadata.load()
                registered = await self._metadata.register_broker(self._registration)
                await self._renewed()
            except (PenstockError, OSError) as error:
                log.warning("no new session with the coordination store yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                log.info("registered again, as epoch %d", registered.epoch)
                return
