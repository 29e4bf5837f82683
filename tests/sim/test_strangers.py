"""Clients that say they are brokers: what they claim of copies and relays is believed of nobody but registered brokers.

(A follower's fetch in another's name is in `test_cluster_scenes`.)
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.as_broker import AsBroker, retired_route
from tests.sim.cluster_retiring import RETIRED
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, fetch_request, produce_request, records_of
from tests.sim.test_cluster_scenes import Scene
from tests.unit.wire.test_peers import REQUESTS

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.records.relay import RelayPlace, position_batch, retired_source
from penstock.replication.retirement import is_retired
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import list_offsets, produce
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_deliver import RelayDeliverRequest
from penstock.wire.peers.retirement import Question, RetirementRequest

TARGET = 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    with SimLoop(2) as loop:
        scene = Scene(loop, {"penstock.retire.check.interval.ms": "200"})
        scene.begin()
        scene.set_topic("penstock.retire.to", str(RETIRED))
        for number in (TARGET, RETIRED):
            scene.loop.run_until(
                lambda number=number: (
                    is_retired(replica_of(scene.leader(RETIRED), RETIRED))  # type: ignore[misc]
                    and bool(routes_of(scene, number))
                )
            )
        yield scene


def image_of(scene: Scene, index: int) -> ClusterImage:
    broker = scene.leader(index).broker
    assert broker is not None
    return broker.metadata.image


def node_of(scene: Scene, machine: Any) -> int:
    return scene.machines.index(machine) + 1


def table_of(scene: Scene, index: int) -> PartitionTable:
    broker = scene.leader(index).broker
    assert broker is not None
    return broker.table


def topic_id_of(scene: Scene) -> bytes:
    return table_of(scene, TARGET).by_name[TOPIC.encode()].id


def routes_of(scene: Scene, index: int) -> tuple[RelayRoute, ...]:
    return table_of(scene, index).routes.out_of(topic_id_of(scene), RETIRED)


def test_a_client_that_speaks_for_a_relay_makes_it_lose_nothing(scene: Scene) -> None:
    """It says that a thousand records were moved: the next ones would be taken for repeats."""
    leader, topic_id = scene.leader(TARGET), topic_id_of(scene)
    epoch = replica_of(scene.leader(RETIRED), RETIRED).leader_epoch
    position = bytes(position_batch(retired_source(RETIRED), RelayPlace(epoch, 1000), 1, skips=True))
    registered = image_of(scene, TARGET).brokers[node_of(scene, scene.leader(RETIRED))]
    for claim in (None, "penstock-relay", f"penstock-relay/{registered.id}/{registered.epoch}"):
        data = produce.PartitionProduceData(index=TARGET, records=position)
        topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[data])
        request = produce.ProduceRequest(transactional_id=claim, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = scene.do(SimClient(leader.name, PORT).call(ApiKey.PRODUCE, request, 13))
        assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    deliver = RelayDeliverRequest(retired_route(topic_id, RETIRED, TARGET), 1000, position)
    with pytest.raises(ConnectionResetError):
        scene.do(SimClient(leader.name, PORT).call(PeerApi.RELAY_DELIVER, deliver, 0))
    # Nor does a broker that is registered no more, or under another epoch.
    for node, broker_epoch in ((registered.id, registered.epoch - 1), (77, registered.epoch)):
        sender = AsBroker(image_of(scene, TARGET), node, broker_epoch)
        answer = scene.do(sender.ask(node_of(scene, leader), leader.name, PeerApi.RELAY_DELIVER, deliver))
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    request = produce_request(RETIRED, batch_of([b"moved"]))
    answer = scene.do(SimClient(scene.leader(RETIRED).name, PORT).call(ApiKey.PRODUCE, request))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    scene.let_pass(5)
    read = scene.do(SimClient(leader.name, PORT).call(ApiKey.FETCH, fetch_request(TARGET, 0)))
    assert [record.value for record in records_of(read.responses[0].partitions[0], 0)] == [b"moved"]


@pytest.mark.parametrize("time", [-1001, -1002, -1003, -1005])
def test_a_client_that_asks_for_what_the_controller_asked_by_times_is_not_understood(
    scene: Scene, time: int
) -> None:
    partition = list_offsets.ListOffsetsPartition(
        partition_index=RETIRED, timestamp=time, current_leader_epoch=scene._state(RETIRED).leader_epoch
    )
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    for replica in (-1, 77, 1, 2):
        request = list_offsets.ListOffsetsRequest(replica_id=replica, topics=topics)
        answer = scene.do(SimClient(scene.leader(RETIRED).name, PORT).call(ApiKey.LIST_OFFSETS, request, 7))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_nobody_closes_a_retired_partition_who_is_no_registered_broker(scene: Scene) -> None:
    leader = scene.leader(RETIRED)
    state = scene._state(RETIRED)
    request = RetirementRequest(Question.CLOSE, topic_id_of(scene), [(RETIRED, state.leader_epoch)])
    with pytest.raises(ConnectionResetError):
        scene.do(SimClient(leader.name, PORT).call(PeerApi.RETIREMENT, request, 0))
    sender = AsBroker(image_of(scene, RETIRED), 77, 1)
    answer = scene.do(sender.ask(node_of(scene, leader), leader.name, PeerApi.RETIREMENT, request))
    assert (answer.error_code, list(answer.partitions)) == (ErrorCode.STALE_BROKER_EPOCH, [])
    retirement = replica_of(leader, RETIRED).retirement
    assert retirement is not None
    assert not retirement.closed


@pytest.mark.parametrize("key", PeerApi, ids=lambda key: key.name)
def test_what_brokers_say_to_each_other_is_not_served_to_clients(scene: Scene, key: PeerApi) -> None:
    client = SimClient(scene.leader(TARGET).name, PORT)
    if key is PeerApi.BROKER_CHALLENGE:
        assert scene.do(client.call(key, REQUESTS[key], 0)).nonce  # anybody may try
    elif key is PeerApi.BROKER_INTRODUCTION:
        answer = scene.do(client.call(key, REQUESTS[key], 0))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        with pytest.raises(ConnectionResetError):
            scene.do(client.call(key, REQUESTS[key], 0))
