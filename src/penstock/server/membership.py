"""This broker's place in the cluster: registered as long as its session lasts, and again in the next one.

A process has one `incarnation`. A new session of it has lost nothing; a new process that did not begin after a clean
shutdown may have, and leads nothing until the controller has dealt with that (`is_settled`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from penstock.controller.controller import Controller
from penstock.coordination.ids import id_text
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import CoordinationError, Tree
from penstock.core.errors import PenstockError

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
# How long a controller may take to deal with a broker that began anew, before it is told so again.
_SETTLED_SECONDS_MAX = 10.0

Connect = Callable[[], Awaitable[Tree]]


class Membership:
    def __init__(self, metadata: MetadataStore, controller: Controller, connect: Connect | None) -> None:
        """Without `connect` there is one session for the whole life of the process."""
        self._metadata = metadata
        self._controller = controller
        self._connect = connect
        self._registration: BrokerRegistration | None = None
        self._clean = True
        self._turn = asyncio.Lock()  # one registration at a time
        self.epoch = -1
        self.stopping = False

    @property
    def is_registered(self) -> bool:
        """Whether it ever was. Before, this process may be given up, and another try begun over the same files."""
        return self.epoch >= 0

    @property
    def is_settled(self) -> bool:
        """Whether this process may lead."""
        if self._registration is None:
            return False
        life = self._metadata.image.lives.get(self._registration.id)
        return life is not None and life.incarnation == self._registration.incarnation and life.settled

    async def join(self, registration: BrokerRegistration, *, clean: bool) -> None:
        """Register, and stand for controller where there is none."""
        self._clean = clean
        self._registration = self._with_incarnation(registration)
        async with self._turn:
            await self._register()
        await self._controller.step()

    def _with_incarnation(self, registration: BrokerRegistration) -> BrokerRegistration:
        incarnation = id_text(self._metadata.random_id())
        return replace(registration, incarnation=incarnation)

    async def _register(self) -> None:
        assert self._registration is not None
        registered = await self._metadata.register_broker(self._registration, clean=self._clean)
        self.epoch = registered.epoch
        if self.stopping:
            await self._metadata.announce_stop(self._registration.id)

    async def begin_anew(self) -> bool:
        """The disk failed and what it holds is not certain: as if this process had crashed. False: cannot tell yet."""
        assert self._registration is not None
        self._registration = self._with_incarnation(self._registration)
        self._clean = False
        try:
            async with self._turn:
                await self._register()
            await self._controller.step()
        except PenstockError as error:
            logger.warning("the metadata cannot be written: %s", error)
            return False
        return await self._metadata.until(lambda: self.is_settled, _SETTLED_SECONDS_MAX)

    async def run(self) -> None:
        """Follow the metadata, session after session, until cancelled."""
        while True:
            try:
                await self._metadata.follow()
            except CoordinationError as error:
                logger.warning("the session with the coordination store is over: %s", error)
            self._controller.resign()
            if self._connect is None:
                return
            await self._renew()

    async def _renew(self) -> None:
        assert self._connect is not None
        while True:
            try:
                with suppress(CoordinationError):
                    await self._metadata.tree.close()  # what is left of it: connections, threads
                tree = await self._connect()
                async with self._turn:
                    self._metadata.attach(tree)
                    await self._metadata.load()
                    await self._register()
            except (PenstockError, OSError) as error:
                logger.warning("no new session with the coordination store yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            logger.info("registered again, as epoch %d", self.epoch)
            self._controller.wake()
            return

    async def stay(self) -> None:
        """Whoever was taken for dead says that it is not, until cancelled. Not who is about to leave anyway."""
        while True:
            await self._metadata.until(lambda: self._is_missed, None)
            try:
                async with self._turn:
                    if self._is_missed:
                        logger.warning("others took this broker for dead: it registers again")
                        await self._register()
            except PenstockError as error:
                logger.info("this broker cannot register now: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    @property
    def _is_missed(self) -> bool:
        """Also when this process is known by another epoch than it goes by itself: the answer to it was lost."""
        own = self._registration
        if own is None or self.stopping:
            return False
        known = self._metadata.image.brokers.get(own.id)
        # Not when another process took its place: the two would take turns for ever.
        return known is None or (known.incarnation == own.incarnation and known.epoch != self.epoch)

    async def leave(self, leads_nothing: Callable[[], bool], timeout_s: float) -> None:
        """Let the controller move leaders elsewhere; returns when it has, or will not."""
        assert self._registration is not None
        self.stopping = True
        try:
            await self._metadata.announce_stop(self._registration.id)
        except CoordinationError as error:
            logger.warning("leaving without saying so: %s", error)
            return
        await self._metadata.until(leads_nothing, timeout_s)
