"""What goes to the controller on another broker: once, in time, and apart from what leaders ask for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import FORWARDED_REQUESTS_MAX
from penstock.core.session import Principal, Session
from penstock.frontends.kafka.apis import load_handlers
from penstock.frontends.kafka.registry import REGISTRY
from penstock.replication.introduction import Identity
from penstock.services.peers.controller_client import ControllerClient
from penstock.services.peers.peers import Peers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    alter_partition,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from penstock.wire.kafka.headers import decode_request_header
from penstock.wire.peers import broker_challenge, broker_introduction, envelope
from penstock.wire.peers.keys import PeerApi

ALTERING: dict[ApiKey, Any] = {
    ApiKey.CREATE_TOPICS: create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    ),
    ApiKey.DELETE_TOPICS: delete_topics.DeleteTopicsRequest(
        topic_names=["t"], topics=[delete_topics.DeleteTopicState(name="t")]
    ),
    ApiKey.CREATE_PARTITIONS: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)]
    ),
    ApiKey.ELECT_LEADERS: elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])]
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.AlterPartitionReassignmentsRequest(),
    ApiKey.UNREGISTER_BROKER: unregister_broker.UnregisterBrokerRequest(broker_id=3),
}
LOOKING: dict[ApiKey, Any] = {
    ApiKey.DESCRIBE_QUORUM: describe_quorum.DescribeQuorumRequest(),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.ListPartitionReassignmentsRequest(),
}
CHALLENGE = broker_challenge.ChallengeResponse(nonce=b"nonce")
ACCEPTED = broker_introduction.IntroductionResponse()
load_handlers()


class Controller:
    """Another broker that notes what it is asked, and answers nothing but introductions; it may hang up instead."""

    def __init__(self, *, hangs_up: bool = False, answers: envelope.EnvelopeResponse | None = None) -> None:
        self.asked: list[ApiKey] = []
        self.envelopes: list[envelope.EnvelopeRequest] = []
        self.answers = answers
        self.open = 0  # connections
        self.hangs_up = hangs_up
        self._news = asyncio.Event()

    def tell(self) -> None:
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    @asynccontextmanager
    async def known_to(self) -> AsyncIterator[ControllerClient]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        image: Any = SimpleNamespace(
            controller=2,
            brokers={2: SimpleNamespace(host="127.0.0.1", port=port)},
            secret=b"secret",
            cluster_id="cluster",
        )
        peers = Peers(Identity(1, image, lambda: 7), image)
        try:
            yield ControllerClient(peers, image)
        finally:
            peers.close()
            server.close()
            await self.until(lambda: not self.open)


class Connection(asyncio.Protocol):
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._controller.open += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            self._take(self._data[4:size])
            self._data = self._data[size:]
        self._controller.tell()

    def _take(self, frame: bytes) -> None:
        header, position = decode_request_header(frame)
        controller = self._controller
        if header.api_key == PeerApi.BROKER_CHALLENGE:
            self._answer(header.correlation_id, broker_challenge.encode_response(CHALLENGE, 0))
        elif header.api_key == PeerApi.BROKER_INTRODUCTION:
            self._answer(header.correlation_id, broker_introduction.encode_response(ACCEPTED, 0))
        else:
            if header.api_key == PeerApi.ENVELOPE:
                inside, _ = envelope.decode_request(frame, position, 0)
                controller.envelopes.append(inside)
                controller.asked.append(ApiKey(inside.api_key))
            else:
                controller.asked.append(ApiKey(header.api_key))
            if controller.hangs_up:
                self._transport.close()
            elif controller.answers is not None:
                self._answer(header.correlation_id, envelope.encode_response(controller.answers, 0))

    def _answer(self, correlation_id: int, body: bytes) -> None:
        self._transport.write((len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._controller.open -= 1
        self._controller.tell()


def told(scene: Callable[[Controller, ControllerClient], Awaitable[None]], controller: Controller) -> None:
    async def told() -> None:
        async with controller.known_to() as client:
            await scene(controller, client)

    asyncio.run(told())


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_every_request_that_is_forwarded_is_here() -> None:
    assert {api.key for api in REGISTRY.values() if api.forwarded} == {*ALTERING, *LOOKING}


@pytest.mark.parametrize("key", ALTERING, ids=lambda key: key.name)
def test_what_alters_something_and_was_sent_is_not_sent_again(key: ApiKey) -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        api = REGISTRY[key]
        for version in range(api.min_version, api.max_version + 1):
            controller.asked.clear()
            answer = await client.forward(key, version, ALTERING[key], 60.0)
            assert controller.asked == [key]
            data = api.codec.encode_response(answer, version)
            said, _ = api.codec.decode_response(data, 0, version)
            assert ErrorCode.REQUEST_TIMED_OUT in codes_of(said), f"version {version}: {said}"

    told(scene, Controller(hangs_up=True))


def codes_of(answer: Any) -> set[int]:
    """All error codes in a response, wherever they stand."""
    codes: set[int] = set()
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name == "error_code":
            codes.add(value)
        elif isinstance(value, list):
            codes.update(*(codes_of(entry) for entry in value if hasattr(entry, "__slots__")))
    return codes


@pytest.mark.parametrize("key", LOOKING, ids=lambda key: key.name)
def test_what_only_looks_is_asked_again(key: ApiKey) -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        asking = asyncio.ensure_future(client.forward(key, 0, LOOKING[key], 60.0))
        await controller.until(lambda: controller.asked == [key, key])
        await ended(asking)

    told(scene, Controller(hangs_up=True))


def test_what_waits_for_its_turn_does_not_wait_for_longer_than_its_time() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        first = asyncio.ensure_future(
            client.forward(ApiKey.CREATE_TOPICS, 7, ALTERING[ApiKey.CREATE_TOPICS], 600.0)
        )
        await controller.until(lambda: bool(controller.asked))
        with pytest.raises(ApiError, match="did not answer"):
            await client.forward(ApiKey.DELETE_TOPICS, 6, ALTERING[ApiKey.DELETE_TOPICS], 0.2)
        assert controller.asked == [ApiKey.CREATE_TOPICS]
        assert not first.done(), "another one's time is not the first one's"
        await ended(first)

    told(scene, Controller())


def test_what_a_leader_asks_does_not_wait_for_what_clients_ask() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        forwarded = asyncio.ensure_future(
            client.forward(ApiKey.CREATE_TOPICS, 7, ALTERING[ApiKey.CREATE_TOPICS], 600.0)
        )
        await controller.until(lambda: bool(controller.asked))
        asking = asyncio.ensure_future(
            client.alter_partition(alter_partition.AlterPartitionRequest(broker_id=1, broker_epoch=1))
        )
        await controller.until(lambda: ApiKey.ALTER_PARTITION in controller.asked)
        await ended(forwarded, asking)

    told(scene, Controller())


def test_only_so_many_wait_for_the_controller() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        request = ALTERING[ApiKey.CREATE_TOPICS]
        waiting = [
            asyncio.ensure_future(client.forward(ApiKey.CREATE_TOPICS, 7, request, 600.0))
            for _ in range(FORWARDED_REQUESTS_MAX)
        ]
        await controller.until(lambda: bool(controller.asked))
        with pytest.raises(ApiError, match="wait for the controller already"):
            await client.forward(ApiKey.CREATE_TOPICS, 7, request, 600.0)
        await ended(*waiting)
        again = asyncio.ensure_future(client.forward(ApiKey.CREATE_TOPICS, 7, request, 600.0))
        await controller.until(lambda: len(controller.asked) == 2)
        await ended(again)

    told(scene, Controller())


def test_who_has_become_the_controller_meanwhile_is_not_asked_over_the_network() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        client._image.controller = 1  # this broker
        client.controller = cast(Any, SimpleNamespace(is_active=True))
        with pytest.raises(ApiError):
            await client.forward(ApiKey.DELETE_TOPICS, 6, ALTERING[ApiKey.DELETE_TOPICS], 600.0)
        assert not controller.asked

    told(scene, Controller())


def test_who_asked_goes_with_the_request() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        caller = Session("CLIENTS", "10.0.0.9")
        caller.principal, caller.client_id = Principal("User", "alice"), "\ufffd" * 30_000
        await client.forward(ApiKey.DELETE_TOPICS, 6, ALTERING[ApiKey.DELETE_TOPICS], 60.0, caller)
        (sent,) = controller.envelopes
        assert sent[:2] == ("User", "alice")
        assert (sent.address, sent.listener, sent.version) == ("10.0.0.9", "CLIENTS", 6)
        assert sent.client_id is not None
        assert sent.client_id.startswith("\ufffd")

    told(scene, Controller(hangs_up=True))


def test_what_a_broker_did_not_carry_out_because_it_is_not_the_controller_is_asked_again() -> None:
    async def scene(controller: Controller, client: ControllerClient) -> None:
        asking = asyncio.ensure_future(
            client.forward(ApiKey.DELETE_TOPICS, 6, ALTERING[ApiKey.DELETE_TOPICS], 60.0)
        )
        await controller.until(lambda: len(controller.asked) == 2)
        body = delete_topics.encode_response(delete_topics.DeleteTopicsResponse(throttle_time_ms=3), 6)
        controller.answers = envelope.EnvelopeResponse(body=body)
        assert (await asking).throttle_time_ms == 3

    told(scene, Controller(answers=envelope.EnvelopeResponse(ErrorCode.NOT_CONTROLLER)))
