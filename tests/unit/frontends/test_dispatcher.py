"""From a frame to a handler: what is not served, what is too large to be done at once, and what others carry out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.frontends.connected import Connected, Reply
from tests.unit.frontends.in_memory import Machine
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, ProtocolError
from penstock.core.limits import (
    LARGE_ANSWER_ENTRIES,
    LARGE_REQUEST_BYTES,
    PLAIN_REQUEST_BYTES_MAX,
    PLAIN_REQUESTS_BYTES_MAX,
    PORTIONED_REQUEST_BYTES,
    PORTIONED_REQUESTS_MAX,
)
from penstock.core.session import Session
from penstock.frontends.kafka.registry import REGISTRY, Call
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import (
    AlterPartitionRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest
from penstock.wire.kafka.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.wire.kafka.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.kafka.generated.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.kafka.primitives import DecodeError

DELETE_VERSION = 6


# -- what is not served -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, 9999])
async def test_an_unknown_api_closes_and_the_log_says_who_asked(
    key: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Machine().broker() as asked:
        with pytest.raises(ProtocolError, match="not served"):
            Connected(asked).send_raw(key, 0)
    assert "client 'tester' at 127.0.0.1" in caplog.text


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 99), (ApiKey.FETCH, 3), (ApiKey.FETCH, 99), (ApiKey.METADATA, 99)],
)
async def test_a_version_out_of_range_closes(key: ApiKey, version: int) -> None:
    async with Machine().broker() as asked:
        with pytest.raises(ProtocolError, match="are served"):
            Connected(asked).send_raw(key, version)


async def test_a_version_of_api_versions_that_is_not_known_is_answered_in_the_lowest() -> None:
    async with Machine().broker() as asked:
        reply = Connected(asked).send_raw(ApiKey.API_VERSIONS, 99, answered_in=0)
        assert reply.answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (own,) = reply.answer.api_keys
        assert own.api_key == ApiKey.API_VERSIONS


@pytest.mark.parametrize("frame", [b"\0\1", b"\0\3\0\0\0\0\0\7\0\x09five"], ids=["short", "client id"])
async def test_a_frame_that_ends_within_its_header_closes(frame: bytes) -> None:
    async with Machine().broker() as asked:
        client = Connected(asked)
        with pytest.raises(DecodeError):
            client.dispatcher.dispatch(client, memoryview(frame))


async def test_only_requests_with_records_may_be_very_large() -> None:
    async with Machine().broker() as asked:
        client = Connected(asked)
        for key in (ApiKey.FETCH, ApiKey.METADATA):
            with pytest.raises(ProtocolError, match="carries no records"):
                client.dispatcher.admit(key, PLAIN_REQUEST_BYTES_MAX + 1)  # before it has come
            with pytest.raises(ProtocolError, match="carries no records"):
                client.send(key, 4, bytes(PLAIN_REQUEST_BYTES_MAX))
        client.dispatcher.admit(ApiKey.PRODUCE, PLAIN_REQUEST_BYTES_MAX + 1)


# -- large ones ---------------------------------------------------------------------------------------------


async def test_a_large_request_is_done_in_turns_and_answered_as_a_small_one_is() -> None:
    async with Machine().broker() as asked:
        client = Connected(asked)
        name = "x" * 200
        few = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        many = MetadataRequest(
            topics=[MetadataRequestTopic(name=f"{name}{at}") for at in range(LARGE_REQUEST_BYTES // 200 + 1)],
            allow_auto_topic_creation=False,
        )
        small = await client.ask(ApiKey.METADATA, 9, few).filled()
        reply = client.ask(ApiKey.METADATA, 9, many)
        assert reply.answer is None
        assert client.dispatcher._large._kept.used_bytes > LARGE_REQUEST_BYTES
        large = await reply.filled()
        assert len(large.topics) == len(many.topics)
        assert {topic.error_code for topic in large.topics} == {small.topics[0].error_code}


def portions_of(monkeypatch: pytest.MonkeyPatch, key: ApiKey) -> list[Any]:
    """What its handler is called with."""
    api, asked = REGISTRY[key], list[Any]()

    def handle(services: Services, request: Any, call: Call) -> Any:
        asked.append(request)
        assert api.handler is not None
        return api.handler(services, request, call)

    monkeypatch.setitem(REGISTRY, key, replace(api, handler=handle))
    return asked


async def test_a_long_list_is_answered_in_portions_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        client = Connected(asked)
        count = PORTIONED_REQUEST_BYTES // 16 + 1
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        portions = portions_of(monkeypatch, ApiKey.LIST_OFFSETS)
        (topic,) = (await client.ask(ApiKey.LIST_OFFSETS, 6, request).filled()).topics
        assert len(portions) > 2
        assert [partition.partition_index for partition in topic.partitions] == list(range(count))
        assert [partition.error_code for partition in topic.partitions[:3]] == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_few_large_requests_are_taken_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of 20,000 names each that waited for each other took 85 MB; eighty were let in."""
    api, goes_on, under_way = REGISTRY[ApiKey.DELETE_TOPICS], asyncio.Event(), list[Any]()

    async def handle(services: Services, request: Any, call: Call) -> DeleteTopicsResponse:
        under_way.append(call.session.broker)
        await goes_on.wait()
        return DeleteTopicsResponse()

    async def at_once(work: Any, *given: Any) -> Any:
        return work(*given)

    monkeypatch.setitem(REGISTRY, ApiKey.DELETE_TOPICS, replace(api, handler=handle))
    async with Machine().broker() as asked:
        client = Connected(asked)
        client.dispatcher._large._in_thread = at_once
        request = DeleteTopicsRequest(topic_names=["x" * 200] * (LARGE_REQUEST_BYTES // 200 + 1))
        replies = [client.ask(ApiKey.DELETE_TOPICS, 5, request) for _ in range(2 * PORTIONED_REQUESTS_MAX)]
        broker = Connected(asked)
        broker.dispatcher, broker.session.broker = client.dispatcher, 1
        replies.append(broker.ask(ApiKey.DELETE_TOPICS, 5, request))
        await until(lambda: 1 in under_way)  # and so everybody who asked before, if let in
        # The last place is for clients from elsewhere.
        assert under_way == [-1] * (PORTIONED_REQUESTS_MAX - 1) + [1]
        goes_on.set()
        for reply in replies:
            await reply.filled()


async def test_a_broker_gets_its_long_answer_without_waiting_for_clients() -> None:
    """500 partitions in one AlterPartition are a small request, whose answer has more entries than that."""
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        broker, (registered,) = Connected(asked), asked.services.image.brokers.values()
        broker.session.broker = registered.id
        await broker.dispatcher._large._large.acquire("a client that asks for much")
        parts = [RequestPartitionData(partition_index=number) for number in range(LARGE_ANSWER_ENTRIES + 1)]
        topic = RequestTopicData(topic_id=asked.services.image.topics["t"].id, partitions=parts)
        request = AlterPartitionRequest(
            broker_id=registered.id, broker_epoch=registered.epoch, topics=[topic]
        )
        reply = broker.ask(ApiKey.ALTER_PARTITION, 3, request)
        assert reply.answer is None
        (answered,) = (await reply.filled()).topics
        assert len(answered.partitions) == len(parts)


async def test_a_broker_is_not_turned_away_for_what_clients_have_under_way() -> None:
    async with Machine().broker() as asked:
        client = Connected(asked)
        client.dispatcher._large._kept.admit(client.peer, PLAIN_REQUESTS_BYTES_MAX)
        name = "x" * 200
        many = MetadataRequest(
            topics=[MetadataRequestTopic(name=f"{name}{at}") for at in range(LARGE_REQUEST_BYTES // 200 + 1)],
            allow_auto_topic_creation=False,
        )
        with pytest.raises(ProtocolError, match="no more are taken"):
            client.ask(ApiKey.METADATA, 9, many)
        client.session.broker = 7  # at the same address
        assert len((await client.ask(ApiKey.METADATA, 9, many).filled()).topics) == len(many.topics)
        assert client.dispatcher._large._kept_of_brokers.used_bytes == 0
        client.session.broker = -1
        with pytest.raises(ProtocolError, match="no more are taken"):
            client.ask(ApiKey.METADATA, 9, many)


# -- what the controller carries out ------------------------------------------------------------------------


class Elsewhere:
    """The controller, seen from a broker that is not it."""

    is_here = False

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.forwarded: list[tuple[int, int, Any, float]] = []

    async def forward(self, key: int, version: int, request: Any, timeout_s: float, caller: Session) -> Any:
        assert caller.peer == Connected.peer
        self.forwarded.append((key, version, request, timeout_s))
        if self.answer is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "nobody is there")
        return self.answer


def deletion(name: str = "t") -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=2000)


async def test_what_only_the_controller_does_is_passed_on_with_the_time_it_has() -> None:
    deleted = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=0)])
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.services.controller_client = controller = Elsewhere(deleted)  # type: ignore[assignment]
        answer = await Connected(asked).ask(ApiKey.DELETE_TOPICS, DELETE_VERSION, deletion()).filled()
        assert answer.responses[0].error_code == 0
        ((key, version, request, timeout_s),) = controller.forwarded
        assert (key, version, request.topics[0].name) == (ApiKey.DELETE_TOPICS, DELETE_VERSION, "t")
        assert timeout_s >= 2
        assert "t" in asked.services.image.topics, "nothing happened here"


async def test_a_controller_that_cannot_be_reached_closes_the_connection() -> None:
    async with Machine().broker() as asked:
        asked.services.controller_client = Elsewhere()  # type: ignore[assignment]
        with pytest.raises(ProtocolError, match="cannot be forwarded"):
            await Connected(asked).ask(ApiKey.DELETE_TOPICS, DELETE_VERSION, deletion()).filled()


async def test_who_became_the_controller_meanwhile_carries_it_out() -> None:
    class Here(Elsewhere):
        async def forward(self, *_: Any) -> Any:
            self.is_here = True
            asked.services.controller_client = own
            raise ApiError(ErrorCode.NOT_CONTROLLER)

    async with Machine().broker() as asked:
        await asked.create("t")
        own = asked.services.controller_client
        asked.services.controller_client = Here()  # type: ignore[assignment]
        answer = await Connected(asked).ask(ApiKey.DELETE_TOPICS, DELETE_VERSION, deletion()).filled()
        assert answer.responses[0].error_code == 0
        assert "t" not in asked.services.image.topics


# -- answers ------------------------------------------------------------------------------------------------


def heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[PendingReply]:
    """Their answers are the caller's to fill."""
    asked: list[PendingReply] = []

    def handle(*_: object) -> PendingReply:
        asked.append(PendingReply(lambda code: code, lambda answer: answer))
        return asked[-1]

    api = REGISTRY[ApiKey.HEARTBEAT]
    monkeypatch.setitem(REGISTRY, ApiKey.HEARTBEAT, replace(api, handler=handle))
    return asked


async def test_an_answer_that_follows_is_sent_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Machine().broker() as asked:
        client, pending = Connected(asked), heartbeats(monkeypatch)
        reply = client.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
        await asyncio.sleep(0)
        assert (reply.answer, client.runs) == (None, 0)  # it costs no task
        pending[0].fill(HeartbeatResponse(error_code=25))
        assert reply.answer.error_code == 25


async def test_an_answer_that_cannot_be_encoded_closes_instead_of_holding_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine().broker() as asked:
        client, pending = Connected(asked), heartbeats(monkeypatch)
        client.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest())
        pending[0].fill(HeartbeatResponse(error_code=1 << 40))
        assert client.is_aborted


async def test_a_request_within_bounds_is_answered_at_once() -> None:
    async with Machine().broker() as asked:
        request = ApiVersionsRequest(client_software_name="tester", client_software_version="1")
        assert Connected(asked).ask(ApiKey.API_VERSIONS, 4, request).answer.error_code == 0


async def test_a_list_of_ordinary_length_waits_for_no_large_requests() -> None:
    """Also of the same address: offsets by time, of thousands of partitions, may take minutes."""
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        client = Connected(asked)
        for _ in range(PORTIONED_REQUESTS_MAX - 1):
            await client.dispatcher._large._portioned_large.acquire(client.peer)

        def listed(count: int) -> Reply:
            wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
            topics = [ListOffsetsTopic(name="t", partitions=wanted)]
            return client.ask(ApiKey.LIST_OFFSETS, 6, ListOffsetsRequest(topics=topics))

        large, ordinary = listed(LARGE_REQUEST_BYTES // 12), listed(PORTIONED_REQUEST_BYTES // 12)
        await ordinary.filled()
        assert large.answer is None
        client.dispatcher._large._portioned_large.release(client.peer)
        await large.filled()
