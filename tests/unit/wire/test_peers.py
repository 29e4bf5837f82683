"""What brokers say to each other: every message comes back as it went, and damaged ones only raise `DecodeError`."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.fuzz.test_decoders import mutated, planted

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.headers import request_header_version, response_header_version
from penstock.wire.kafka.messages import MessageModule, request_module
from penstock.wire.kafka.primitives import DecodeError, EncodeError
from penstock.wire.peers.broker_challenge import ChallengeRequest, ChallengeResponse
from penstock.wire.peers.broker_introduction import IntroductionRequest, IntroductionResponse
from penstock.wire.peers.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.log_ends import LogEndsRequest, LogEndsResponse, ToldEnd, WantedEnd
from penstock.wire.peers.relay_deliver import RelayDeliverRequest, RelayDeliverResponse
from penstock.wire.peers.relay_positions import RelayPositionsRequest, RelayPositionsResponse
from penstock.wire.peers.retirement import (
    Closed,
    Frozen,
    Question,
    RetirementRequest,
    RetirementResponse,
    Seen,
)
from penstock.wire.peers.routes import WireRoute
from penstock.wire.peers.tombstones import TombstonesRequest, TombstonesResponse

ROUTE = WireRoute(0, b"s" * 16, 5, b"t" * 16, 2)
REQUESTS: dict[PeerApi, Any] = {
    PeerApi.BROKER_CHALLENGE: ChallengeRequest(),
    PeerApi.BROKER_INTRODUCTION: IntroductionRequest(3, 2**40, b"proof"),
    PeerApi.ENVELOPE: EnvelopeRequest("User", "alice", "app", "::1", "CLIENTS", 19, 7, b"body"),
    PeerApi.RELAY_DELIVER: RelayDeliverRequest(ROUTE, 5000, b"batches"),
    PeerApi.RELAY_POSITIONS: RelayPositionsRequest(ROUTE),
    PeerApi.RETIREMENT: RetirementRequest(Question.CLOSE, b"t" * 16, [(7, 3), (8, 4)]),
    PeerApi.TOMBSTONES: TombstonesRequest(b"t" * 16, 7, 3),
    PeerApi.LOG_ENDS: LogEndsRequest([WantedEnd(b"t" * 16, 7, 3), WantedEnd(b"s" * 16, 0, 0)]),
}
RESPONSES: dict[PeerApi, Any] = {
    PeerApi.BROKER_CHALLENGE: ChallengeResponse(31, b"nonce"),
    PeerApi.BROKER_INTRODUCTION: IntroductionResponse(31),
    PeerApi.ENVELOPE: EnvelopeResponse(41, b"body"),
    PeerApi.RELAY_DELIVER: RelayDeliverResponse(77, "no broker of that epoch", 9),
    PeerApi.RELAY_POSITIONS: RelayPositionsResponse(0, None, ((4, 2**40), (3, 0))),
    PeerApi.RETIREMENT: RetirementResponse(
        0, [(1, 0, Frozen(2**40)), (2, 0, Seen(5, 6)), (3, 0, Closed(7)), (4, 78, None)]
    ),
    PeerApi.TOMBSTONES: TombstonesResponse(0, 2**40),
    PeerApi.LOG_ENDS: LogEndsResponse([ToldEnd(0, 3, 2**40), ToldEnd(0, 3, 5, False), ToldEnd(56)]),
}
every_api = pytest.mark.parametrize("key", PeerApi, ids=lambda key: key.name)


def coded(key: PeerApi) -> list[tuple[Any, Any, Any]]:
    """(message, encode, decode) of both directions."""
    codec: MessageModule = request_module(key)
    return [
        (REQUESTS[key], codec.encode_request, codec.decode_request),
        (RESPONSES[key], codec.encode_response, codec.decode_response),
    ]


@every_api
def test_what_is_sent_arrives(key: PeerApi) -> None:
    for message, encode, decode in coded(key):
        data = encode(message, 0)
        assert decode(memoryview(b"head" + data), 4, 0) == (message, 4 + len(data))


@every_api
def test_damaged_messages_raise_nothing_but_what_is_declared(key: PeerApi) -> None:
    for message, encode, decode in coded(key):
        data = encode(message, 0)
        for mutant in (*planted(data, "legacy"), *(mutated(data, Random(key)) if data else ())):
            with suppress(DecodeError):
                _, end = decode(mutant, 0, 0)
                assert end <= len(mutant)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                decode(data[:size], 0, 0)


@every_api
def test_other_versions_are_refused(key: PeerApi) -> None:
    for message, encode, decode in coded(key):
        for version in (-1, 1):
            with pytest.raises(DecodeError, match="has versions 0 to 0"):
                decode(encode(message, 0), 0, version)
            with pytest.raises(DecodeError):
                encode(message, version)


@every_api
def test_keys_are_far_from_kafkas_and_codecs_say_theirs(key: PeerApi) -> None:
    codec = request_module(key)
    assert codec.API_KEY == key > 100 * max(ApiKey)
    assert (request_header_version(key, 0), response_header_version(key, 0)) == (1, 0)


def test_a_topic_that_is_no_id_is_not_sent() -> None:
    codec = request_module(PeerApi.RETIREMENT)
    with pytest.raises(EncodeError):
        codec.encode_request(RetirementRequest(Question.LOOK, b"short", []), 0)
