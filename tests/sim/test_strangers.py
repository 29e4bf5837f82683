"""Clients that say they are brokers: what they claim of copies and relays is believed of nobody but registered brokers.

(A follower's fetch in another's name is in `test_cluster_scenes`.)
"""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_retiring import RETIRED
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, fetch_request, produce_request, records_of
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.records.relay import RelayPlace, position_batch, retired_source
from penstock.replication.retirement import is_retired
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable
from penstock.services.relay.inbox import RELAYED, sender_id
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import list_offsets, produce

TARGET = 0
CLOSE = -1005


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


def table_of(scene: Scene, index: int) -> PartitionTable:
    broker = scene.leader(index).broker
    assert broker is not None
    return broker.table


def topic_id_of(scene: Scene) -> bytes:
    return table_of(scene, TARGET).by_name[TOPIC.encode()].id


def routes_of(scene: Scene, index: int) -> tuple[RelayRoute, ...]:
    return table_of(scene, index).routes.out_of(topic_id_of(scene), RETIRED)


def claims(scene: Scene) -> Iterator[str]:
    broker = scene.leader(TARGET).broker
    assert broker is not None
    number = scene.machines.index(scene.leader(RETIRED)) + 1
    registered = broker.metadata.image.brokers[number]
    yield RELAYED
    yield sender_id(number, registered.epoch - 1)
    yield sender_id(77, registered.epoch)
    yield RELAYED + "/a/b"


def test_a_client_that_speaks_for_a_relay_makes_it_lose_nothing(scene: Scene) -> None:
    """It says that a thousand records were moved: the next ones would be taken for repeats."""
    leader = scene.leader(TARGET)
    epoch = replica_of(scene.leader(RETIRED), RETIRED).leader_epoch
    word = position_batch(retired_source(RETIRED), RelayPlace(epoch, 1000), 1, skips=True)
    for claim in claims(scene):
        data = produce.PartitionProduceData(index=TARGET, records=bytes(word))
        topic = produce.TopicProduceData(topic_id=topic_id_of(scene), partition_data=[data])
        request = produce.ProduceRequest(transactional_id=claim, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = scene.do(SimClient(leader.name, PORT).call(ApiKey.PRODUCE, request, 13))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.STALE_BROKER_EPOCH
    request = produce_request(RETIRED, batch_of([b"moved"]))
    answer = scene.do(SimClient(scene.leader(RETIRED).name, PORT).call(ApiKey.PRODUCE, request))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    scene.let_pass(5)
    read = scene.do(SimClient(leader.name, PORT).call(ApiKey.FETCH, fetch_request(TARGET, 0)))
    assert [record.value for record in records_of(read.responses[0].partitions[0], 0)] == [b"moved"]


def test_a_client_that_asks_for_what_the_controller_asks_is_not_understood(scene: Scene) -> None:
    partition = list_offsets.ListOffsetsPartition(
        partition_index=RETIRED, timestamp=CLOSE, current_leader_epoch=scene._state(RETIRED).leader_epoch
    )
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    for replica in (-1, 77):
        request = list_offsets.ListOffsetsRequest(replica_id=replica, topics=topics)
        answer = scene.do(SimClient(scene.leader(RETIRED).name, PORT).call(ApiKey.LIST_OFFSETS, request, 7))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
