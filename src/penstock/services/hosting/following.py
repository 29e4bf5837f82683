"""Hosting as the metadata moves on: each change is made true, and high watermarks are written down now and then."""

import asyncio
import logging

from penstock.config.live import LiveConfig
from penstock.coordination.image import ImageDelta
from penstock.core.errors import PenstockError, StorageError
from penstock.core.tasks import endless
from penstock.services.hosting.hosting import Hosting

logger = logging.getLogger(__name__)

# How long it rests when it could not make true what the metadata says.
_RETRY_SECONDS = 1.0


class HostingLoop:
    def __init__(self, hosting: Hosting, config: LiveConfig) -> None:
        self._hosting = hosting
        self._config = config
        self._changed = asyncio.Event()

    def image_changed(self, delta: ImageDelta) -> None:
        if delta.brokers:
            self._hosting.look_again()
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(endless(self._keep_true), name="hosting")
            tasks.create_task(endless(self._save_high_watermarks), name="high watermarks")

    async def _keep_true(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._hosting.reconcile()
            except PenstockError:
                logger.exception("this broker could not follow a change of the metadata")
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    async def _save_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(self._config.now.replica_high_watermark_checkpoint_interval_ms / 1000)
            try:
                await self._hosting.save_high_watermarks()
            except StorageError as error:
                logger.warning("the high watermarks could not be written down: %s", error)
