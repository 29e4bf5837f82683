"""Answers to Fetch: those that come before or after the request was taken care of, and those that refuse all of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import FETCH_HELD_BYTES_MIN
from penstock.services.fetch_sessions import FetchSession
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka.leaders import EndpointOf, NodeEndpoint

if TYPE_CHECKING:
    from penstock.frontends.kafka.hot import Asker, Reply


class FetchOutcome:
    """Takes a fetch's answer, whether it comes before or after the handler returned."""

    __slots__ = ("_asker", "_correlation_id", "_endpoint_of", "_parts", "_reply", "_version")

    def __init__(
        self, asker: "Asker", endpoint_of: Callable[[str], EndpointOf], correlation_id: int, version: int
    ) -> None:
        self._asker = asker
        self._endpoint_of = endpoint_of
        self._correlation_id = correlation_id
        self._version = version
        self._parts: list[object] | None = None
        self._reply: Reply | None = None

    def answered(self, topics: list[fetch_codec.TopicAnswer], session: FetchSession | None) -> None:
        session_id = session.id if session is not None else 0
        parts = fetch_codec.encode_response(
            self._correlation_id, self._version, topics, session_id=session_id, endpoint_of=self._endpoint
        )
        if self._reply is None:
            self._parts = parts
        else:
            self._reply.send(parts)

    def _endpoint(self, broker: int) -> NodeEndpoint | None:
        """Asked only where another broker leads, which is rare."""
        return self._endpoint_of(self._asker.session.listener)(broker)

    def result(self, give_up: Callable[[], None], request_bytes: int) -> list[object] | None:
        if self._parts is None:
            self._reply = self._asker.defer(give_up, max(request_bytes, FETCH_HELD_BYTES_MIN))
        return self._parts


def refused_fetch(request: fetch_codec.FetchRequest, version: int, correlation_id: int) -> list[object]:
    """Every partition named, each with the error of the whole."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = [
        (
            topic,
            [fetch_codec.PartitionAnswer(one.partition, error, -1, -1, -1, None, 0, []) for one in wanted],
        )
        for topic, wanted in request.topics
    ]
    return fetch_codec.encode_response(correlation_id, version, topics, error=error)
