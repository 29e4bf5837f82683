"""From a frame to a handler: reads the request header, checks API and version, encodes the answer."""

import inspect
from struct import Struct as Layout
from typing import Any

from penstock.core.errors import ProtocolError
from penstock.core.limits import (
    LARGE_REQUEST_BYTES,
    PLAIN_REQUEST_BYTES_MAX,
    PORTIONED_REQUEST_BYTES,
)
from penstock.frontends.kafka.answers import LaterAnswer, encoded, unsupported_api_versions
from penstock.frontends.kafka.envelopes import opened
from penstock.frontends.kafka.hot import Asker, HotPath
from penstock.frontends.kafka.hot_commits import CommitPath
from penstock.frontends.kafka.large_requests import LargeRequests
from penstock.frontends.kafka.portions import InThread
from penstock.frontends.kafka.registry import REGISTRY, Api, Call, not_served
from penstock.frontends.kafka.served import SERVED
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka import offset_commit as commit_codec
from penstock.wire.kafka import produce as produce_codec
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.messages import api_name
from penstock.wire.kafka.primitives import DecodeError, skip_tags
from penstock.wire.peers.keys import PeerApi

_HEAD = Layout(">hhih")  # api key, version, correlation id, client id length
# As plain numbers: looking one up in its class takes longer than all that is done with it.
_HEAD_BYTES = _HEAD.size
_OFFSET_COMMIT = int(ApiKey.OFFSET_COMMIT)
_ENVELOPE = int(PeerApi.ENVELOPE)
_RELAY_DELIVER = int(PeerApi.RELAY_DELIVER)
_CARRY_RECORDS = (int(ApiKey.PRODUCE), _RELAY_DELIVER)
_COMMITS_SINCE = commit_codec.FLEXIBLE_SINCE


class KafkaDispatcher:
    def __init__(self, services: Services, hot: HotPath, in_thread: InThread) -> None:
        self._services = services
        self._hot = hot
        self._commits = CommitPath(services)
        _, _, self._commits_max, _ = SERVED[ApiKey.OFFSET_COMMIT]
        self._left_out = not_served(services.config.now)
        self._large = LargeRequests(services, hot, in_thread)
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
                self._large.run_fetch(connection, data, position, version, correlation_id)
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
        api = self._find(api_key)
        if api is None or api.handler is None:
            raise self._not_served(connection, frame, position, api_key, version)
        if not api.min_version <= version <= api.max_version:
            if api_key == ApiKey.API_VERSIONS:
                return unsupported_api_versions(correlation_id)
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
            self._large.run(connection, api, data, position, call, correlation_id, len(frame))
            return None
        if api.portions and len(frame) > PORTIONED_REQUEST_BYTES:
            connection.run(self._large.in_portions(connection, api, data, position, call, correlation_id))
            return None
        request, _ = api.codec.decode_request(data, position, version)
        if api.asks_for_much is not None and api.asks_for_much(self._services, request, call):
            connection.run(
                self._large.in_portions(connection, api, data, position, call, correlation_id, request)
            )
            return None
        if api.forwarded and not self._services.controller_client.is_here:
            connection.run(self._large.forwarded(connection, api, request, call, correlation_id))
            return None
        response = api.handler(self._services, request, call)
        if isinstance(response, PendingReply):
            if response.is_there:
                return encoded(api, correlation_id, version, response.rendered())
            response.subscribe(LaterAnswer(connection, connection.defer(), api, correlation_id, version))
            return None
        if inspect.isawaitable(response):
            connection.run(self._large.awaited(connection, api, correlation_id, version, response))
            return None
        return encoded(api, correlation_id, version, response)

    def _find(self, api_key: int) -> Api | None:
        return None if api_key in self._left_out else REGISTRY.find(api_key)

    def _not_served(
        self, connection: Any, frame: memoryview, position: int, api_key: int, version: int
    ) -> ProtocolError:
        """Clients do not ask for what ApiVersions did not name: an old one, or one that does not look."""
        api, name = self._find(api_key), api_name(api_key)
        is_for_it = api is not None and (not api.internal or connection.session.broker >= 0)
        why = (
            f"versions {api.min_version} to {api.max_version} are served"
            if api and is_for_it
            else "it is not served"
        )
        self._services.refusals.tell(_client_id(frame, position), connection.peer, name, why)
        return ProtocolError(f"{name} version {version}: {why}")


def _client_id(frame: bytes | memoryview, behind: int) -> str | None:
    return str(frame[10:behind], "utf-8", "replace") if behind > 10 else None


def _behind_tags(frame: bytes | memoryview, position: int) -> int:
    try:
        return position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except IndexError:
        raise DecodeError("the frame ends inside its header") from None


__all__ = ["Asker", "KafkaDispatcher"]
