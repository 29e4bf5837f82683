"""Brokers are told as clients of the listener that was asked reach them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.partition_states import write_states

from penstock.coordination.metadata import NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.core.endpoints import Endpoint
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.records.builder import build_batch
from penstock.records.reader import Record
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection
from penstock.wire.kafka.generated import fetch, produce
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterRequest
from penstock.wire.kafka.generated.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.kafka.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest
from penstock.wire.kafka.generated.metadata import MetadataRequest, MetadataRequestTopic

CLIENTS, BROKERS = "CLIENTS", "BROKERS"
TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "advertised.listeners": "CLIENTS://127.0.1.1:19092,BROKERS://127.0.2.1:19093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
# Nobody listens there.
OTHER = BrokerRegistration(
    2,
    "identity-2",
    "127.0.2.2",
    19093,
    endpoints=(
        Endpoint(CLIENTS, "PLAINTEXT", "127.0.1.2", 19092),
        Endpoint(BROKERS, "PLAINTEXT", "127.0.2.2", 19093),
    ),
)
OLDER = replace(OTHER, id=3, identity="identity-3", host="127.0.1.3", port=19092, endpoints=())
HALF = replace(OTHER, id=4, identity="identity-4", endpoints=OTHER.endpoints[1:])  # not for clients
WHERE = {
    CLIENTS: [(1, "127.0.1.1", 19092), (2, "127.0.1.2", 19092), (3, "127.0.1.3", 19092)],
    BROKERS: [
        (1, "127.0.2.1", 19093),
        (2, "127.0.2.2", 19093),
        (3, "127.0.1.3", 19092),
        (4, "127.0.2.2", 19093),
    ],
}


async def settle(asked: Asked, *leaders: int) -> None:
    """Three more brokers, and topics that they lead."""
    for registration in (OTHER, OLDER, HALF):
        await asked.broker.metadata.register_broker(registration)
    topics = [(f"of-{leader}", leader) for leader in (1, 2, 3, 4)] + [
        (OFFSETS_TOPIC, leaders[0] if leaders else 2)
    ]
    await asked.broker.metadata.create_topics(
        [NewTopic(name, [PartitionState((leader,), (leader,), leader)], {}) for name, leader in topics]
    )
    await asked.broker.hosting.reconcile()


def nodes(brokers: list[Any], name: str = "node_id") -> list[tuple[int, str, int]]:
    return [(getattr(broker, name), broker.host, broker.port) for broker in brokers]


@pytest.mark.parametrize("listener", [CLIENTS, BROKERS])
async def test_metadata_and_describe_cluster(listener: str) -> None:
    async with Machine(TWO).broker() as asked:
        await settle(asked)
        asked.listener = listener
        answer = await asked.ask(ApiKey.METADATA, MetadataRequest(topics=[]), 12)
        assert nodes(answer.brokers) == WHERE[listener]
        answer = await asked.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), 1)
        assert nodes(answer.brokers, "broker_id") == WHERE[listener]


async def test_a_leader_that_the_listener_does_not_reach_is_told_as_such() -> None:
    async with Machine(TWO).broker() as asked:
        await settle(asked)
        found = {}
        for listener in (BROKERS, CLIENTS, BROKERS):
            for version in (5, 6):
                asked.listener = listener
                wanted = [MetadataRequestTopic(name=f"of-{leader}") for leader in (2, 4)]
                answer = await asked.ask(ApiKey.METADATA, MetadataRequest(topics=wanted), version)
                parts = [topic.partitions[0] for topic in answer.topics]
                found[listener, version] = [
                    (partition.error_code, partition.leader_id, partition.offline_replicas)
                    for partition in parts
                ]
        here = (ErrorCode.NONE, 2, [])
        assert found[BROKERS, 6] == found[BROKERS, 5] == [here, (ErrorCode.NONE, 4, [])]
        assert found[CLIENTS, 6] == [here, (ErrorCode.LISTENER_NOT_FOUND, -1, [4])]
        assert found[CLIENTS, 5] == [here, (ErrorCode.LEADER_NOT_AVAILABLE, -1, [4])]
        asked.listener = CLIENTS
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="of-4")])
        answer = await asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
        [part] = answer.topics[0].partitions
        assert (part.error_code, part.offline_replicas) == (ErrorCode.LISTENER_NOT_FOUND, [4])


@pytest.mark.parametrize(
    ("leader", "listener", "told"),
    [
        (2, CLIENTS, (ErrorCode.NONE, 2, "127.0.1.2", 19092)),
        (2, BROKERS, (ErrorCode.NONE, 2, "127.0.2.2", 19093)),
        (3, CLIENTS, (ErrorCode.NONE, 3, "127.0.1.3", 19092)),
        (4, CLIENTS, (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
async def test_find_coordinator(leader: int, listener: str, told: tuple[Any, ...], version: int) -> None:
    async with Machine(TWO).broker() as asked:
        await settle(asked, leader)
        asked.listener = listener
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
        found = answer if version < 4 else answer.coordinators[0]
        assert (found.error_code, found.node_id, found.host, found.port) == told


async def test_describe_quorum_tells_all_listeners() -> None:
    async with Machine(TWO).broker() as asked:
        partition = RequestPartitionData(partition_index=0)
        topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = await asked.ask(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]), 2)
        told = [(listener.name, listener.host, listener.port) for listener in answer.nodes[0].listeners]
        assert told == [(CLIENTS, "127.0.1.1", 19092), (BROKERS, "127.0.2.1", 19093)]


async def exchange(asked: Asked, number: int, api_key: int, version: int, request: Any) -> Any:
    """Over a real connection to one of the listeners."""
    reader, writer = await asyncio.open_connection(*asked.broker.listeners.all[number].address)
    client = ClientConnection("tester")
    writer.write(client.send(api_key, version, request)[1])
    try:
        while not (found := [*client.receive(await reader.read(65536))]):
            pass
        return found[0].message()
    finally:
        writer.close()


@pytest.mark.parametrize(("number", "listener"), [(0, CLIENTS), (1, BROKERS)])
@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH])
async def test_leader_hints(number: int, listener: str, api_key: ApiKey) -> None:
    async with Machine(TWO).broker() as asked:
        await settle(asked)
        # Replicas here, of partitions that others lead: only of those hints are given.
        states = {
            (f"of-{leader}", 0): PartitionState((1, leader), (1, leader), leader, 1) for leader in (2, 4)
        }
        await write_states(asked.broker.metadata, states)
        await asked.broker.hosting.reconcile()
        batch = bytes(build_batch([Record(offset=0, timestamp=1, key=None, value=b"v")]))
        ids = [asked.services.image.topics[f"of-{leader}"].id for leader in (2, 4)]
        request: Any
        if api_key == ApiKey.PRODUCE:
            data = produce.PartitionProduceData(index=0, records=batch)
            topics = [
                produce.TopicProduceData(name=f"of-{leader}", partition_data=[data]) for leader in (2, 4)
            ]
            request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
            version = 10
        else:
            wanted = fetch.FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=100, current_leader_epoch=0
            )
            request = fetch.FetchRequest(
                max_bytes=100,
                topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[wanted]) for topic_id in ids],
            )
            version = 16
        answer = await exchange(asked, number, api_key, version, request)
        where = {endpoint[0]: endpoint for endpoint in WHERE[listener]}
        assert nodes(answer.node_endpoints) == [where[leader] for leader in (2, 4) if leader in where]
