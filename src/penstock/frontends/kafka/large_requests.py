"""Requests that would hold everybody up: large ones, those with large answers, and those that another broker answers.

What is in a large request is taken apart in a thread, few of them at a time; a long list is answered in portions; a
large answer is encoded in a thread, once there is memory for it.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from penstock.core.errors import ApiError, ProtocolError
from penstock.core.limits import (
    ANSWER_ADMITTED_BYTES_MIN,
    LARGE_ANSWER_ENTRIES,
    LARGE_REQUEST_BYTES,
    PORTIONED_REQUESTS_MAX,
    PORTIONED_REQUESTS_OF_BROKERS_MAX,
    REQUEST_ENTRIES_MAX,
    REQUEST_ENTRIES_WHOLE_MAX,
)
from penstock.frontends.kafka.answer_size import answer_size
from penstock.frontends.kafka.answers import LaterAnswer, encoded
from penstock.frontends.kafka.envelopes import NOT_CONTROLLER
from penstock.frontends.kafka.hot import HotPath
from penstock.frontends.kafka.kept_requests import KeptRequests
from penstock.frontends.kafka.places import BriefPlace, Place, Places
from penstock.frontends.kafka.portions import InThread, check_size, in_portions
from penstock.frontends.kafka.registry import REGISTRY, Api, Call
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.messages import api_name
from penstock.wire.peers.keys import PeerApi

# How long a request for the controller is tried beyond its own time, and what of its own time counts.
_FORWARDED_SECONDS = 5.0
_FORWARDED_SECONDS_MAX = 30.0

Parts = list[object]
Later = Callable[[Any], None]


class LargeRequests:
    def __init__(self, services: Services, hot: HotPath, in_thread: InThread) -> None:
        self._services = services
        self._hot = hot
        self._in_thread = in_thread
        # Work in a thread still takes turns with the loop at the interpreter: one such thread is enough.
        self._large = Places(1)
        self._large_of_brokers = Places(1)  # they must not wait for clients
        self._kept = KeptRequests()
        self._kept_of_brokers = KeptRequests()  # nor be turned away for what clients send
        self._portioned = Places(PORTIONED_REQUESTS_MAX)
        self._portioned_large = Places(PORTIONED_REQUESTS_MAX)  # apart: they may take minutes
        self._whole = Places(PORTIONED_REQUESTS_MAX)
        self._asking_for_all = Places(PORTIONED_REQUESTS_MAX)  # apart: everybody asks for Metadata
        self._portioned_of_brokers = Places(PORTIONED_REQUESTS_OF_BROKERS_MAX)

    def run(
        self,
        connection: Any,
        api: Api,
        data: bytes,
        position: int,
        call: Call,
        correlation_id: int,
        size: int,
    ) -> None:
        """A request of more than 64 KB; ProtocolError where it is one too many."""
        kept, whose = self._admitted(connection, size)
        answering = self.in_portions if api.portions else self._at_leisure
        work = answering(connection, api, data, position, call, correlation_id)
        connection.run(kept.until_done(whose, size, work))

    def run_fetch(
        self, connection: Any, data: memoryview, position: int, version: int, correlation_id: int
    ) -> None:
        """The same of Fetch."""
        kept, whose = self._admitted(connection, len(data))
        work = self._fetch_at_leisure(connection, data, position, version, correlation_id)
        connection.run(kept.until_done(whose, len(data), work), len(data))

    async def in_portions(
        self,
        connection: Any,
        api: Api,
        data: bytes | memoryview,
        position: int,
        call: Call,
        correlation_id: int,
        request: Any = None,
    ) -> Parts:
        """A list whose entries are answered apart: some at a time, and few such requests at once."""
        if connection.session.broker >= 0:
            places = self._portioned_of_brokers
        elif not api.portions:
            places = self._asking_for_all
        else:
            places = self._portioned_large if len(data) > LARGE_REQUEST_BYTES else self._portioned
        large = self._large_place(connection)
        async with Place(places, connection.peer, len(data), connection.has_left) as place:
            if request is None:
                request = await self._taken_apart(
                    api, data, position, call.version, REQUEST_ENTRIES_MAX, large
                )
            response = await in_portions(api, self._services, request, call, self._in_thread, place)
            return await self._told(connection, api, correlation_id, call.version, response, place)

    async def awaited(
        self, connection: Any, api: Api, correlation_id: int, version: int, answer: Awaitable[Any]
    ) -> Parts:
        return await self._told(connection, api, correlation_id, version, await answer)

    async def forwarded(
        self, connection: Any, api: Api, request: Any, call: Call, correlation_id: int
    ) -> Parts:
        controller = self._services.controller_client
        if call.session.forwarded_by >= 0:
            return encoded(REGISTRY[PeerApi.ENVELOPE], correlation_id, 0, NOT_CONTROLLER)  # once is enough
        own_s = getattr(request, "timeout_ms", 0) / 1000
        timeout_s = min(own_s, _FORWARDED_SECONDS_MAX) + _FORWARDED_SECONDS
        try:
            response = await controller.forward(api.key, call.version, request, timeout_s, call.session)
        except ApiError as error:
            if not controller.is_here:
                # There is no answer that says this for all of them; clients connect anew and try again.
                raise ProtocolError(f"{api_name(api.key)} cannot be forwarded: {error}") from error
            assert api.handler is not None
            response = await api.handler(self._services, request, call)
        return await self._told(connection, api, correlation_id, call.version, response)

    async def _at_leisure(
        self,
        connection: Any,
        api: Api,
        data: bytes | memoryview,
        position: int,
        call: Call,
        correlation_id: int,
    ) -> Parts | Later:
        """A large request: what is in it, and in its answer, would hold up everybody else on the loop.

        A few at the same time: taken apart each is tens of megabytes, and all that a collection has to walk through.
        """
        of_broker = connection.session.broker >= 0  # which must not wait for clients
        brief = BriefPlace(self._whole, connection.peer, len(data), connection.has_left)
        async with nullcontext() if of_broker else brief:
            services = self._services
            entries_max = REQUEST_ENTRIES_MAX if api.gives_way else REQUEST_ENTRIES_WHOLE_MAX
            place = self._large_place(connection)
            request = await self._taken_apart(api, data, position, call.version, entries_max, place)
            if api.forwarded and not services.controller_client.is_here:
                return await self.forwarded(connection, api, request, call, correlation_id)
            assert api.handler is not None
            response = api.handler(services, request, call)
            if isinstance(response, PendingReply):
                later = response
                return lambda reply: later.subscribe(
                    LaterAnswer(connection, reply, api, correlation_id, call.version)
                )
            if inspect.isawaitable(response):
                response = await response
            return await self._told(connection, api, correlation_id, call.version, response)

    async def _fetch_at_leisure(
        self,
        connection: Any,
        frame: memoryview,
        position: int,
        version: int,
        correlation_id: int,
    ) -> Parts | Later:
        async with self._large_place(connection):
            return await self._hot.fetch_large(
                connection, frame, position, version, correlation_id, self._in_thread
            )

    def _admitted(self, connection: Any, size_bytes: int) -> tuple[KeptRequests, str]:
        """Where a large request is counted from now on, and as whose; ProtocolError where it is one too many."""
        kept = self._kept if connection.session.broker < 0 else self._kept_of_brokers
        whose = _name_of(connection)
        kept.admit(whose, size_bytes)
        return kept, whose

    def _large_place(self, connection: Any) -> Place:
        places = self._large if connection.session.broker < 0 else self._large_of_brokers
        return Place(places, _name_of(connection), 0, connection.has_left)

    async def _told(
        self,
        connection: Any,
        api: Api,
        correlation_id: int,
        version: int,
        response: Any,
        place: Place | None = None,
    ) -> Parts:
        """The answer encoded: a long one in a thread, a large one when there is memory for it."""
        size = answer_size(response, LARGE_ANSWER_ENTRIES)
        if size.entries <= LARGE_ANSWER_ENTRIES and size.encoded_bytes <= ANSWER_ADMITTED_BYTES_MIN:
            return encoded(api, correlation_id, version, response)
        if size.entries > LARGE_ANSWER_ENTRIES:
            size = await self._in_thread(answer_size, response)
        if size.encoded_bytes > ANSWER_ADMITTED_BYTES_MIN:
            room = connection.room_for(size.encoded_bytes)
            if room is not None:
                if place is not None:
                    place.step_aside(size.waiting_bytes)
                await room
        async with self._large_place(connection):
            parts: Parts = await self._in_thread(encoded, api, correlation_id, version, response)
        return parts

    async def _taken_apart(
        self,
        api: Api,
        data: bytes | memoryview,
        position: int,
        version: int,
        entries_max: int,
        place: Place,
    ) -> Any:
        async with place:
            request, _ = await self._in_thread(api.codec.decode_request, data, position, version)
            await self._in_thread(check_size, request, entries_max)
        return request


def _name_of(connection: Any) -> str:
    """By which it shares what is scarce: its address. Of brokers, several may run at one."""
    broker = connection.session.broker
    return connection.peer if broker < 0 else f"broker {broker}"
