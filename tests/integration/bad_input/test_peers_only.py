"""What is between brokers, sent by a client: refused, and nothing is changed by it."""

from struct import pack

import pytest
from tests.integration.bad_input.conftest import Victim
from tests.integration.raw import FETCH_VERSION, RawClient, fetch_request, outcome
from tests.unit.wire.test_peers import REQUESTS

from penstock.core.error_codes import ErrorCode as E
from penstock.records.relay import RelayPlace, position_batch, retired_source
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    alter_partition,
    api_versions,
    fetch_snapshot,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock.wire.peers.broker_introduction import IntroductionRequest
from penstock.wire.peers.keys import PeerApi

BROKER = 1
INTRODUCING = (PeerApi.BROKER_CHALLENGE, PeerApi.BROKER_INTRODUCTION)
REST = [key for key in PeerApi if key not in INTRODUCING]
LAST_EPOCH = 0x7FFFFFFF


def topic_id_of(client: RawClient, topic: str) -> bytes:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
    found: bytes = client.call(ApiKey.METADATA, 12, request).topics[0].topic_id
    return found


@pytest.mark.parametrize("key", REST, ids=lambda key: key.name)
def test_private_requests_close_the_connection_unanswered(victim: Victim, key: PeerApi) -> None:
    with RawClient(victim.port) as client, pytest.raises(ConnectionError):
        client.call(key, 0, REQUESTS[key])


@pytest.mark.parametrize("key", REST, ids=lambda key: key.name)
def test_nor_is_anything_served_after_an_introduction_that_proved_nothing(
    victim: Victim, key: PeerApi
) -> None:
    with RawClient(victim.port) as client:
        nonce = client.call(PeerApi.BROKER_CHALLENGE, 0, REQUESTS[PeerApi.BROKER_CHALLENGE]).nonce
        claim = IntroductionRequest(BROKER, 1, nonce)
        answer = client.call(PeerApi.BROKER_INTRODUCTION, 0, claim)
        assert E(answer.error_code) is E.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(ConnectionError):
            client.call(key, 0, REQUESTS[key])


@pytest.mark.parametrize("size", [0, 3, 70_000, 5 << 20])
def test_large_ones_and_such_that_cannot_be_read_are_closed_as_well(victim: Victim, size: int) -> None:
    for key in REST:
        head = pack(">hhih", key, 0, 7, -1)
        assert outcome(victim.port, pack(">i", len(head) + size) + head + bytes(size)) == "closed"


def test_clients_are_not_told_of_them(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="1")
        told = {api.api_key for api in client.call(ApiKey.API_VERSIONS, 4, request).api_keys}
    assert not told & {*PeerApi, ApiKey.ALTER_PARTITION, ApiKey.FETCH_SNAPSHOT}


def test_requests_of_leaders_and_followers_are_closed(victim: Victim) -> None:
    requests = (
        (ApiKey.ALTER_PARTITION, 3, alter_partition.AlterPartitionRequest(broker_id=BROKER, broker_epoch=1)),
        (ApiKey.FETCH_SNAPSHOT, 0, fetch_snapshot.FetchSnapshotRequest(replica_id=BROKER)),
    )
    for key, version, request in requests:
        with RawClient(victim.port) as client, pytest.raises(ConnectionError):
            client.call(key, version, request)


def test_a_followers_fetch_reads_nothing(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        for replica in (0, BROKER, 2**31 - 1):
            request = fetch_request(victim.topic, 0, replica_id=replica)
            answer = client.call(ApiKey.FETCH, FETCH_VERSION, request)
            assert E(answer.responses[0].partitions[0].error_code) is E.NOT_LEADER_OR_FOLLOWER
        for reader in (-1, -2):  # of which the second is a debugging consumer
            request = fetch_request(victim.topic, 0, replica_id=reader)
            answer = client.call(ApiKey.FETCH, FETCH_VERSION, request)
            assert E(answer.responses[0].partitions[0].error_code) is E.NONE


def test_who_says_to_be_a_replica_hears_of_epochs_what_readers_do(victim: Victim) -> None:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=LAST_EPOCH)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=victim.topic, partitions=[partition])
    answers = []
    with RawClient(victim.port) as client:
        for replica in (-1, BROKER):
            request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=replica, topics=[topic])
            answers.append(client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("time", [-1001, -1002, -1003, -1005])
def test_what_the_controller_asked_by_times_once_is_not_understood(victim: Victim, time: int) -> None:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=time)
    topic = list_offsets.ListOffsetsTopic(name=victim.topic, partitions=[partition])
    with RawClient(victim.port) as client:
        request = list_offsets.ListOffsetsRequest(replica_id=BROKER, topics=[topic])
        answer = client.call(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]
    assert E(answer.error_code) is E.UNSUPPORTED_VERSION


@pytest.mark.parametrize("claim", ["penstock-relay", f"penstock-relay/{BROKER}/1"])
def test_the_transactional_id_that_relays_had_means_nothing(victim: Victim, claim: str) -> None:
    with RawClient(victim.port) as client:
        position = bytes(position_batch(retired_source(1), RelayPlace(0, 1000), 1, skips=True))
        data = produce.PartitionProduceData(index=0, records=position)
        topic = produce.TopicProduceData(topic_id=topic_id_of(client, victim.topic), partition_data=[data])
        request = produce.ProduceRequest(transactional_id=claim, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = client.call(ApiKey.PRODUCE, 13, request).responses[0].partition_responses[0]
    assert E(answer.error_code) is not E.NONE
