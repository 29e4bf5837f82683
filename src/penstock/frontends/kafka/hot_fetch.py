"""Answers to Fetch: those that come before or after the request was taken care of, and those that refuse all of it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import FETCH_HELD_BYTES_MIN, FETCH_HELD_PARTITION_BYTES, SLICE_BYTES_MIN
from penstock.services.fetching.answers import distinct
from penstock.services.fetching.long_fetch import is_long
from penstock.services.fetching.service import FetchService
from penstock.services.fetching.sessions import FetchSession, Remembered, remembered
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka.leaders import NodeEndpoint

if TYPE_CHECKING:
    from penstock.frontends.kafka.hot import Asker, Reply


logger = logging.getLogger(__name__)


class FetchOutcome:
    """Takes a fetch's answer, whether it comes before or after the handler returned."""

    __slots__ = ("_asker", "_correlation_id", "_parts", "_reply", "_service", "_version")

    def __init__(self, asker: "Asker", service: FetchService, correlation_id: int, version: int) -> None:
        self._asker = asker
        self._service = service
        self._correlation_id = correlation_id
        self._version = version
        self._parts: list[object] | None = None
        self._reply: Reply | None = None

    def answered(self, topics: list[fetch_codec.TopicAnswer], session: FetchSession | None) -> None:
        session_id = session.id if session is not None else 0
        if self._reply is None:
            self._parts = self._encoded(topics, session_id)
        elif is_long(topics):
            slices = sum(answer.size >= SLICE_BYTES_MIN for _, answers in topics for answer in answers)
            self._service.lend(slices)
            done = partial(self._send_encoded, self._reply, slices)
            self._service.in_thread(partial(self._encoded, topics, session_id), done)
        else:
            self._reply.send(self._encoded(topics, session_id))

    def _encoded(self, topics: list[fetch_codec.TopicAnswer], session_id: int) -> list[object]:
        return fetch_codec.encode_response(
            self._correlation_id, self._version, topics, session_id=session_id, endpoint_of=self._endpoint
        )

    def _send_encoded(self, reply: "Reply", slices: int, encoded: asyncio.Future[list[object]]) -> None:
        self._service.lend(-slices)
        if encoded.cancelled():
            return
        if (error := encoded.exception()) is not None:
            # A bug of ours; without this answer none of those behind it would ever go.
            logger.error("an answer to %s cannot be encoded", self._asker.session.peer, exc_info=error)
            self._asker.abort()
        else:
            reply.send(encoded.result())

    def _endpoint(self, broker: int) -> NodeEndpoint | None:
        """Asked only where another broker leads, which is rare."""
        return self._service.hints.endpoint_of(self._asker.session.listener)(broker)

    def result(self, give_up: Callable[[], None], request_bytes: int, session_id: int) -> list[object] | None:
        if self._parts is None:
            of_session = self._service.sessions.partitions_of(session_id) * FETCH_HELD_PARTITION_BYTES
            self._reply = self._asker.defer(give_up, max(request_bytes, of_session, FETCH_HELD_BYTES_MIN))
        return self._parts

    def result_behind(self, give_up: Callable[[], None]) -> "list[object] | Callable[[Reply], None]":
        """The same for a request that has its place in the row already."""

        def follow(reply: "Reply") -> None:
            self._reply, reply.abandoned = reply, give_up

        return follow if self._parts is None else self._parts


def taken_apart(
    frame: memoryview, position: int, version: int
) -> tuple[fetch_codec.FetchRequest, Remembered]:
    """All that takes long with a large request, before anybody is asked anything."""
    request = fetch_codec.decode_request(frame, position, version)
    request = request._replace(topics=distinct(request.topics))
    return request, remembered(request)


def refused_fetch(request: fetch_codec.FetchRequest, version: int, correlation_id: int) -> list[object]:
    """Every partition named, each with the error of the whole."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = _all_refused(request, error, [])
    return fetch_codec.encode_response(correlation_id, version, topics, error=error)


def refused_follower(request: fetch_codec.FetchRequest, version: int, correlation_id: int) -> list[object]:
    """For who says to be a replica and has not proven it: as Kafka answers who is none."""
    topics = _all_refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, [] if request.isolation_level else None)
    return fetch_codec.encode_response(correlation_id, version, topics)


def _all_refused(
    request: fetch_codec.FetchRequest, error: ErrorCode, aborted: list[tuple[int, int]] | None
) -> list[fetch_codec.TopicAnswer]:
    return [
        (
            topic,
            [
                fetch_codec.PartitionAnswer(partition.partition, error, -1, -1, -1, None, 0, aborted)
                for partition in wanted
            ],
        )
        for topic, wanted in request.topics
    ]
