"""Kafka's Fetch above the reader (`services.fetching`): sessions, versions, and answers as they go over the wire."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import FETCH_HELD_BYTES_MIN, FETCH_HELD_PARTITION_BYTES, SLICE_BYTES_MIN
from penstock.frontends.kafka.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
    Remembered,
    remembered,
)
from penstock.frontends.kafka.leader_hints import LeaderHints
from penstock.services.fetching.consumer import consumer_fetch
from penstock.services.fetching.follower import FollowerFetch
from penstock.services.fetching.found import Found, FoundInTopic
from penstock.services.fetching.long_fetch import is_long
from penstock.services.fetching.service import FetchService
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka.fetch import FOLLOWERS_SINCE, TOPIC_IDS_SINCE, FetchPartition, FetchRequest
from penstock.wire.kafka.leaders import NodeEndpoint

if TYPE_CHECKING:
    from penstock.frontends.kafka.hot import Asker, Reply
    from penstock.services.fetching.request import Reads


logger = logging.getLogger(__name__)


class Outcome(Protocol):
    """Takes a fetch's answer, and before that the session it belongs to."""

    session: FetchSession | None

    def answered(self, topics: list[FoundInTopic]) -> None: ...


class KafkaFetches:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: FetchService,
        sessions: FetchSessions,
        hints: LeaderHints,
    ) -> None:
        self._loop = loop
        self.reader = reader
        self.sessions = sessions
        self.hints = hints
        self.leader_of = hints.leader_of  # at hand: every answer has it

    def fetch(
        self, request: FetchRequest, version: int, outcome: Outcome, remembered: Remembered | None = None
    ) -> Callable[[], None]:
        """Tells `outcome` now or later, once. Raises ApiError for a request that is wrong as a whole.

        What is returned gives the fetch up. `remembered` comes with a large request, which names nothing twice: what a
        session that it begins would remember.
        """
        reader, session, told = self.reader, None, None
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_id != NO_SESSION or request.session_epoch != FINAL_EPOCH:
            session = self.sessions.find(request, self._loop.time(), by_id=by_id, remembered=remembered)
        if session is not None:
            outcome.session = session
            topics = session.topics()
            # Only a request that carries on a session leaves out what did not change.
            told = session.told_changes if request.session_epoch > 0 else session.told_all
        else:
            topics = distinct(request.topics) if remembered is None else request.topics
        isolation = request.isolation_level
        if request.replica_id < 0:
            led = version < FOLLOWERS_SINCE
            reads: Reads = consumer_fetch(isolation, request.rack, reader.selector, led=led)
        else:
            # Where consumers may read from it, a follower is to hear at once of what they may see.
            is_news = None if session is None or reader.selector is None else session.is_news
            follower, epoch = request.replica_id, request.replica_epoch
            reads = FollowerFetch(follower, epoch, reader.followers, is_news, stable=isolation > 0)
        return reader.fetch(request, topics, reads, outcome.answered, told, by_id=by_id)


class FetchOutcome:
    """Takes a fetch's answer, whether it comes before or after the handler returned."""

    __slots__ = ("_asker", "_correlation_id", "_fetches", "_parts", "_reply", "_version", "session")

    def __init__(self, asker: "Asker", fetches: KafkaFetches, correlation_id: int, version: int) -> None:
        self._asker = asker
        self._fetches = fetches
        self.session: FetchSession | None = None
        self._correlation_id = correlation_id
        self._version = version
        self._parts: list[object] | None = None
        self._reply: Reply | None = None

    def answered(self, topics: list[FoundInTopic]) -> None:
        session_id = self.session.id if self.session is not None else NO_SESSION
        if self._reply is None:
            self._parts = self._encoded(topics, session_id)
        elif is_long(topics):
            slices = sum(answer.size >= SLICE_BYTES_MIN for _, answers in topics for answer in answers)
            reader = self._fetches.reader
            reader.lend(slices)
            done = partial(self._send_encoded, self._reply, slices)
            reader.in_thread(partial(self._encoded, topics, session_id), done)
        else:
            self._reply.send(self._encoded(topics, session_id))

    def _encoded(self, topics: list[FoundInTopic], session_id: int) -> list[object]:
        return fetch_codec.encode_response(
            self._correlation_id,
            self._version,
            topics,
            session_id=session_id,
            leader_of=self._fetches.leader_of,
            endpoint_of=self._endpoint,
        )

    def _send_encoded(self, reply: "Reply", slices: int, encoded: asyncio.Future[list[object]]) -> None:
        self._fetches.reader.lend(-slices)
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
        return self._fetches.hints.endpoint_of(self._asker.session.listener)(broker)

    def result(self, give_up: Callable[[], None], request_bytes: int, session_id: int) -> list[object] | None:
        if self._parts is None:
            of_session = self._fetches.sessions.partitions_of(session_id) * FETCH_HELD_PARTITION_BYTES
            self._reply = self._asker.defer(give_up, max(request_bytes, of_session, FETCH_HELD_BYTES_MIN))
        return self._parts

    def result_behind(self, give_up: Callable[[], None]) -> "list[object] | Callable[[Reply], None]":
        """The same for a request that has its place in the row already."""

        def follow(reply: "Reply") -> None:
            self._reply, reply.abandoned = reply, give_up

        return follow if self._parts is None else self._parts


def distinct(topics: list[tuple[bytes, list[FetchPartition]]]) -> list[tuple[bytes, list[FetchPartition]]]:
    """Each topic and partition once: of a partition named twice, the last counts, as in Kafka."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return topics
    merged: dict[bytes, dict[int, FetchPartition]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update((partition.partition, partition) for partition in partitions)
    return [(topic, list(partitions.values())) for topic, partitions in merged.items()]


def taken_apart(frame: memoryview, position: int, version: int) -> tuple[FetchRequest, Remembered]:
    """All that takes long with a large request, before anybody is asked anything."""
    request = fetch_codec.decode_request(frame, position, version)
    request = request._replace(topics=distinct(request.topics))
    return request, remembered(request)


def refused_fetch(request: FetchRequest, version: int, correlation_id: int) -> list[object]:
    """Every partition named, each with the error of the whole."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = _all_refused(request, error, [])
    return fetch_codec.encode_response(correlation_id, version, topics, error=error)


def refused_follower(request: FetchRequest, version: int, correlation_id: int) -> list[object]:
    """For who says to be a replica and has not proven it: as Kafka answers who is none."""
    topics = _all_refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, [] if request.isolation_level else None)
    return fetch_codec.encode_response(correlation_id, version, topics)


def _all_refused(
    request: FetchRequest, error: ErrorCode, aborted: list[tuple[int, int]] | None
) -> list[fetch_codec.TopicAnswer]:
    return [
        (topic, [Found(place.partition, error, -1, -1, -1, None, 0, aborted) for place in wanted])
        for topic, wanted in request.topics
    ]
