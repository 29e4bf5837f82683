"""From a frame to a handler: reads the request header, checks API and version, encodes the answer."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from struct import Struct as Layout
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, ProtocolError
from penstock.core.limits import (
    LARGE_ANSWER_BYTES,
    LARGE_ANSWER_ENTRIES,
    LARGE_REQUEST_BYTES,
    PLAIN_REQUEST_BYTES_MAX,
    PORTIONED_REQUEST_BYTES,
    PORTIONED_REQUESTS_MAX,
    PORTIONED_REQUESTS_OF_BROKERS_MAX,
    REQUEST_ENTRIES_MAX,
    REQUEST_ENTRIES_WHOLE_MAX,
)
from penstock.frontends.kafka.answer_size import has_more_entries
from penstock.frontends.kafka.envelopes import NOT_CONTROLLER, opened
from penstock.frontends.kafka.hot import Asker, HotPath
from penstock.frontends.kafka.hot_commits import CommitPath
from penstock.frontends.kafka.kept_requests import KeptRequests
from penstock.frontends.kafka.places import BriefPlace, Place, Places
from penstock.frontends.kafka.portions import InThread, check_size, in_portions
from penstock.frontends.kafka.registry import REGISTRY, Api, Call
from penstock.frontends.kafka.served import SERVED
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka import offset_commit as commit_codec
from penstock.wire.kafka import produce as produce_codec
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import api_versions
from penstock.wire.kafka.messages import api_name
from penstock.wire.kafka.primitives import DecodeError, EncodeError, Struct, skip_tags
from penstock.wire.peers.keys import PeerApi

_HEAD = Layout(">hhih")  # api key, version, correlation id, client id length
# Of a response: size, correlation id, and in flexible versions no tagged fields.
_HEAD_PLAIN = Layout(">ii")
_HEAD_WITH_TAGS = Layout(">iib")
# As plain numbers: looking one up in its class takes longer than all that is done with it.
_HEAD_BYTES = _HEAD.size
_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)
_ENVELOPE = int(PeerApi.ENVELOPE)
_RELAY_DELIVER = int(PeerApi.RELAY_DELIVER)
_CARRY_RECORDS = (int(ApiKey.PRODUCE), _RELAY_DELIVER)
_COMMITS_SINCE = commit_codec.FLEXIBLE_SINCE

# How long a request for the controller is tried beyond its own time, and what of its own time counts.
_FORWARDED_SECONDS = 5.0
_FORWARDED_SECONDS_MAX = 30.0

logger = logging.getLogger(__name__)


class KafkaDispatcher:
    def __init__(self, services: Services, hot: HotPath, in_thread: InThread) -> None:
        self._services = services
        self._hot = hot
        self._commits = CommitPath(services)
        _, _, self._commits_max, _ = SERVED[ApiKey.OFFSET_COMMIT]
        # Work in a thread still takes turns with the loop at the interpreter: one such thread is enough.
        self._large = Places(1)
        self._large_of_brokers = Places(1)  # they must not wait for clients
        self._kept = KeptRequests()
        self._kept_of_brokers = KeptRequests()  # nor be turned away for what clients send
        self._portioned = Places(PORTIONED_REQUESTS_MAX)
        self._portioned_large = Places(PORTIONED_REQUESTS_MAX)  # apart: they may take minutes
        self._whole = Places(PORTIONED_REQUESTS_MAX)
        self._portioned_of_brokers = Places(PORTIONED_REQUESTS_OF_BROKERS_MAX)
        self._in_thread = in_thread
        self.write_held = hot.write_held

    def dispatch(self, connection: Any, frame: memoryview) -> Any:
        """The parts of a response; None when it follows later or there is none. ProtocolError closes."""
        size = len(frame)
        if size < _HEAD_BYTES:
            raise DecodeError(f"a frame of {size} bytes holds no request header")
        api_key, version, correlation_id, client_id_length = _HEAD.unpack_from(frame)
        position = 10 + client_id_length if client_id_length > 0 else 10
        if position > size:
            raise DecodeError("a client id longer than the frame")
        if api_key == 0:
            if not produce_codec.MIN_VERSION <= version <= produce_codec.MAX_VERSION:
                raise self._not_served(connection, frame, position, api_key, version)
            connection.session.produces = True
            if version >= produce_codec.FLEXIBLE_SINCE:
                position = _behind_tags(frame, position)
            return self._hot.produce(connection, frame, position, version, correlation_id)
        if size > PLAIN_REQUEST_BYTES_MAX:
            self.admit(api_key, size)
        if api_key == 1:
            if not fetch_codec.MIN_VERSION <= version <= fetch_codec.MAX_VERSION:
                raise self._not_served(connection, frame, position, api_key, version)
            if version >= fetch_codec.FLEXIBLE_SINCE:
                position = _behind_tags(frame, position)
            if size > LARGE_REQUEST_BYTES:
                data = memoryview(bytes(frame))  # the buffer is free, however long this takes
                kept, whose = self._admitted(connection, size)
                place = self._large_place(connection)
                work = self._fetch_at_leisure(connection, data, position, version, correlation_id, place)
                connection.run(kept.until_done(whose, size, work), size)
                return None
            return self._hot.fetch(connection, frame, position, version, correlation_id)
        if api_key == _OFFSET_COMMIT and _COMMITS_SINCE <= version <= self._commits_max:
            behind_tags = _behind_tags(frame, position)
            answer = self._commits.commit(connection, frame, behind_tags, version, correlation_id)
            if answer is not None:
                return answer
        return self._dispatch_other(connection, frame, position, api_key, version, correlation_id)

    def admit(self, api_key: int, size_bytes: int) -> None:
        if api_key not in _CARRY_RECORDS and size_bytes > PLAIN_REQUEST_BYTES_MAX:
            raise ProtocolError(f"a request of {size_bytes} bytes that carries no records")

    def _dispatch_other(
        self,
        connection: Any,
        frame: memoryview,
        position: int,
        api_key: int,
        version: int,
        correlation_id: int,
    ) -> list[object] | None:
        api = REGISTRY.find(api_key)
        if api is None or api.handler is None:
            raise self._not_served(connection, frame, position, api_key, version)
        if not api.min_version <= version <= api.max_version:
            if api_key == ApiKey.API_VERSIONS:
                return _unsupported_api_versions(correlation_id)
            raise self._not_served(connection, frame, position, api_key, version)
        session = connection.session
        if api.internal and session.broker < 0 and not api.introduces:
            raise self._not_served(connection, frame, position, api_key, version)
        # Bytes are read quicker than a view of them, and the buffer is free, however long this takes.
        data = bytes(frame)
        client_id = _client_id(data, position)
        if version >= api.codec.FLEXIBLE_SINCE:
            position = _behind_tags(data, position)
        session.client_id = client_id
        call = Call(version, client_id, session)
        if api_key == _ENVELOPE:
            api, call, data = opened(data, position, version, session)
            version, position = call.version, 0
        assert api.handler is not None
        if len(frame) > LARGE_REQUEST_BYTES and api_key != _RELAY_DELIVER:
            kept, whose = self._admitted(connection, len(frame))
            work = (
                self._in_portions(connection, api, data, position, call, correlation_id)
                if api.portions
                else self._at_leisure(connection, api, data, position, call, correlation_id)
            )
            connection.run(kept.until_done(whose, len(frame), work))
            return None
        if api.portions and len(frame) > PORTIONED_REQUEST_BYTES:
            connection.run(self._in_portions(connection, api, data, position, call, correlation_id))
            return None
        request, _ = api.codec.decode_request(data, position, version)
        if api.asks_for_much is not None and api.asks_for_much(self._services, request, call):
            connection.run(self._in_portions(connection, api, data, position, call, correlation_id))
            return None
        if api.forwarded and not self._services.controller_client.is_here:
            connection.run(_forwarded(self._services, api, request, call, correlation_id))
            return None
        response = api.handler(self._services, request, call)
        if isinstance(response, PendingReply):
            if response.is_there:
                return _encoded(api, correlation_id, version, response.rendered())
            response.subscribe(_Answer(connection, connection.defer(), api, correlation_id, version))
            return None
        if inspect.isawaitable(response):
            connection.run(self._awaited(connection, api, correlation_id, version, response))
            return None
        return _encoded(api, correlation_id, version, response)

    def _not_served(
        self, connection: Any, frame: memoryview, position: int, api_key: int, version: int
    ) -> ProtocolError:
        """Clients do not ask for what ApiVersions did not name: an old one, or one that does not look."""
        api, name = REGISTRY.find(api_key), api_name(api_key)
        is_for_it = api is not None and (not api.internal or connection.session.broker >= 0)
        why = (
            f"versions {api.min_version} to {api.max_version} are served"
            if api and is_for_it
            else "it is not served"
        )
        self._services.refusals.tell(_client_id(frame, position), connection.peer, name, why)
        return ProtocolError(f"{name} version {version}: {why}")

    async def _at_leisure(
        self,
        connection: Any,
        api: Api,
        data: bytes | memoryview,
        position: int,
        call: Call,
        correlation_id: int,
    ) -> list[object] | Callable[[Any], None]:
        """A large request: what is in it, and in its answer, would hold up everybody else on the loop.

        A few at the same time: taken apart each is tens of megabytes, and all that a collection has to walk through.
        """
        if connection.session.broker >= 0:  # they must not wait for clients
            return await self._as_a_whole(connection, api, data, position, call, correlation_id)
        async with BriefPlace(self._whole, connection.peer, len(data), connection.has_left):
            return await self._as_a_whole(connection, api, data, position, call, correlation_id)

    async def _as_a_whole(
        self,
        connection: Any,
        api: Api,
        data: bytes | memoryview,
        position: int,
        call: Call,
        correlation_id: int,
    ) -> list[object] | Callable[[Any], None]:
        services = self._services
        entries_max = REQUEST_ENTRIES_MAX if api.gives_way else REQUEST_ENTRIES_WHOLE_MAX
        place = self._large_place(connection)
        request = await self._taken_apart(api, data, position, call.version, entries_max, place)
        if api.forwarded and not services.controller_client.is_here:
            return await _forwarded(services, api, request, call, correlation_id)
        assert api.handler is not None
        response = api.handler(services, request, call)
        if isinstance(response, PendingReply):
            later = response
            return lambda reply: later.subscribe(
                _Answer(connection, reply, api, correlation_id, call.version)
            )
        if inspect.isawaitable(response):
            response = await response
        async with place:
            return await self._encoded_in_thread(api, correlation_id, call.version, response)

    async def _fetch_at_leisure(
        self,
        connection: Any,
        frame: memoryview,
        position: int,
        version: int,
        correlation_id: int,
        place: Place,
    ) -> list[object] | Callable[[Any], None]:
        async with place:
            return await self._hot.fetch_large(
                connection, frame, position, version, correlation_id, self._in_thread
            )

    async def _in_portions(
        self,
        connection: Any,
        api: Api,
        data: bytes | memoryview,
        position: int,
        call: Call,
        correlation_id: int,
    ) -> list[object]:
        """A list whose entries are answered apart: some at a time, and few such requests at once."""
        if connection.session.broker >= 0:
            places = self._portioned_of_brokers
        else:
            places = self._portioned_large if len(data) > LARGE_REQUEST_BYTES else self._portioned
        large = self._large_place(connection)
        async with Place(places, connection.peer, len(data), connection.has_left) as place:
            request = await self._taken_apart(api, data, position, call.version, REQUEST_ENTRIES_MAX, large)
            response = await in_portions(api, self._services, request, call, self._in_thread, place)
            async with large:
                return await self._encoded_in_thread(api, correlation_id, call.version, response)

    def _admitted(self, connection: Any, size_bytes: int) -> tuple[KeptRequests, str]:
        """Where a large request is counted from now on, and as whose; ProtocolError where it is one too many."""
        kept = self._kept if connection.session.broker < 0 else self._kept_of_brokers
        whose = _name_of(connection)
        kept.admit(whose, size_bytes)
        return kept, whose

    def _large_place(self, connection: Any) -> Place:
        places = self._large if connection.session.broker < 0 else self._large_of_brokers
        return Place(places, _name_of(connection), 0, connection.has_left)

    async def _awaited(
        self, connection: Any, api: Api, correlation_id: int, version: int, answer: Awaitable[Any]
    ) -> list[object]:
        response = await answer
        if isinstance(response, Struct) and has_more_entries(response, LARGE_ANSWER_ENTRIES):
            async with self._large_place(connection):
                return await self._encoded_in_thread(api, correlation_id, version, response)
        return _encoded(api, correlation_id, version, response)

    async def _encoded_in_thread(
        self, api: Api, correlation_id: int, version: int, response: Any
    ) -> list[object]:
        parts: list[object] = await self._in_thread(_encoded, api, correlation_id, version, response)
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


class _Answer:
    """Sends what a request was waiting for, in its place in the row of responses."""

    __slots__ = ("_api", "_connection", "_correlation_id", "_reply", "_version")

    def __init__(self, connection: Any, reply: Any, api: Api, correlation_id: int, version: int) -> None:
        self._connection = connection
        self._api = api
        self._correlation_id = correlation_id
        self._version = version
        self._reply = reply

    def __call__(self, response: Any) -> None:
        try:
            parts = _encoded(self._api, self._correlation_id, self._version, response)
        except EncodeError:  # a bug of ours; others wait in the same row and must get theirs
            logger.exception("an answer to %s cannot be encoded", self._connection.peer)
            self._connection.abort()
        else:
            self._reply.send(parts)


async def _forwarded(
    services: Services, api: Api, request: Any, call: Call, correlation_id: int
) -> list[object]:
    controller = services.controller_client
    if call.session.forwarded_by >= 0:
        return _encoded(REGISTRY[_ENVELOPE], correlation_id, 0, NOT_CONTROLLER)  # once is enough
    timeout_s = min(getattr(request, "timeout_ms", 0) / 1000, _FORWARDED_SECONDS_MAX) + _FORWARDED_SECONDS
    try:
        response = await controller.forward(api.key, call.version, request, timeout_s, call.session)
    except ApiError as error:
        if not controller.is_here:
            # There is no answer that says this for all of them; clients connect anew and try again.
            raise ProtocolError(f"{api_name(api.key)} cannot be forwarded: {error}") from error
        assert api.handler is not None
        response = await api.handler(services, request, call)
    return _encoded(api, correlation_id, call.version, response)


def _encoded(api: Api, correlation_id: int, version: int, response: Any) -> list[object]:
    # A handler may have encoded its answer itself, where it keeps parts of it ready.
    body = response if isinstance(response, bytes) else api.codec.encode_response(response, version)
    # ApiVersions is read by clients that do not know yet what the broker speaks: its header is never flexible.
    if version >= api.codec.FLEXIBLE_SINCE and api.key != ApiKey.API_VERSIONS:
        head = _HEAD_WITH_TAGS.pack(len(body) + 5, correlation_id, 0)
    else:
        head = _HEAD_PLAIN.pack(len(body) + 4, correlation_id)
    # Nobody else runs while a large one is copied.
    return [head + body] if len(body) <= LARGE_ANSWER_BYTES else [head, body]


def _name_of(connection: Any) -> str:
    """By which it shares what is scarce: its address. Of brokers, several may run at one."""
    broker = connection.session.broker
    return connection.peer if broker < 0 else f"broker {broker}"


def _client_id(frame: bytes | memoryview, behind: int) -> str | None:
    return str(frame[10:behind], "utf-8", "replace") if behind > 10 else None


def _unsupported_api_versions(correlation_id: int) -> list[object]:
    """The one version mismatch that is answered: it tells the client which versions to try instead."""
    api = REGISTRY[ApiKey.API_VERSIONS]
    own = api_versions.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
    response = api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return _encoded(api, correlation_id, 0, response)


def _behind_tags(frame: bytes | memoryview, position: int) -> int:
    try:
        return position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except IndexError:
        raise DecodeError("the frame ends inside its header") from None


__all__ = ["Asker", "KafkaDispatcher"]
