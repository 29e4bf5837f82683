"""Whoever asks in the wrong place is told who leads, and where to find it (KIP-951)."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.messages import TOPIC, batch_of, produce_request
from tests.sim.test_cluster_moves import BY_HAND, telling
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import fetch


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """One for all: nobody here leaves it in another state than it was."""
    with SimLoop(1) as loop:
        scene = Scene(loop)
        scene.begin()
        scene.loop.run_until(lambda: all(is_known(machine) for machine in scene.machines))
        yield scene


def is_known(machine: SimBroker) -> bool:
    return machine.broker is not None and TOPIC.encode() in machine.broker.table.by_name


def topic_id(scene: Scene) -> bytes:
    broker = scene.leader().broker
    assert broker is not None
    return broker.table.by_name[TOPIC.encode()].id


def produce_to(scene: Scene, at: SimBroker, version: int) -> Any:
    request = produce_request(0, batch_of([b"x"]), topic_id=topic_id(scene))
    return scene.do(SimClient(at.name, PORT).call(ApiKey.PRODUCE, request, version))


def fetch_from(scene: Scene, at: SimBroker, version: int, leader_epoch: int) -> Any:
    partition = fetch.FetchPartition(partition=0, current_leader_epoch=leader_epoch, partition_max_bytes=2000)
    topic = fetch.FetchTopic(topic=TOPIC, topic_id=topic_id(scene), partitions=[partition])
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10_000, topics=[topic])
    return scene.do(SimClient(at.name, PORT).call(ApiKey.FETCH, request, version))


def endpoints(answer: Any) -> list[tuple[int, str, int]]:
    return [
        (node_endpoint.node_id, node_endpoint.host, node_endpoint.port)
        for node_endpoint in answer.node_endpoints
    ]


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_producer_in_the_wrong_place_is_told_who_leads(scene: Scene, version: int) -> None:
    answer = produce_to(scene, scene.followers()[0], version)
    told = answer.responses[0].partition_responses[0]
    state = scene._state(0)
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        leader = (state.leader, state.leader_epoch)
        place = [(state.leader, scene.leader().name, PORT)]
    else:
        leader, place = (-1, -1), []
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == leader
    assert endpoints(answer) == place


@pytest.mark.parametrize("version", [12, 15, 16, 17])
def test_a_reader_with_an_old_epoch_is_told_who_leads(scene: Scene, version: int) -> None:
    before = scene.leader()
    old = scene._state(0).leader_epoch
    before.stop()
    before.start()
    scene.until_whole()
    scene.loop.run_until(lambda: all(is_known(machine) for machine in scene.machines))
    state = scene._state(0)
    assert state.leader_epoch > old
    answer = fetch_from(scene, scene.leader(), version, old)
    told = answer.responses[0].partitions[0]
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
    if version >= 16:
        leader = (state.leader, state.leader_epoch)
        place = [(state.leader, scene.leader().name, PORT)]
    else:
        leader, place = (-1, -1), []
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == leader
    assert endpoints(answer) == place


def test_a_producer_that_waits_is_told_who_leads_now(scene: Scene) -> None:
    """Its leader is cut off from all others, and hears of its successor while the producer still waits."""
    before = scene.leader()
    for machine in scene.followers():
        scene.loop.network.stall(before.name, machine.name)
    request = produce_request(0, batch_of([b"x"]), timeout_ms=60_000)
    client = SimClient(before.name, PORT, timeout_s=60)
    waiting = scene.loop.spawn("producer", client.call(ApiKey.PRODUCE, request, 10))
    scene.let_pass(0.2)
    before.cut_off()
    scene.loop.run_until(lambda: scene.leader() is not before)
    before.reach_store()
    answer = scene.loop.run_until_complete(waiting)
    told = answer.responses[0].partition_responses[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.current_leader.leader_id == scene._state(0).leader
    assert endpoints(answer) == [(scene._state(0).leader, scene.leader().name, PORT)]
    scene.loop.network.heal_all()
    scene.until_whole()


def test_a_producer_that_waits_for_the_disk_is_told_who_leads_now() -> None:
    """Of a partition with a single replica, which moves to another broker while its disk is too slow to answer."""
    with telling(1, BY_HAND) as story:
        story.begin_with(4, replicas=1, clients=False)
        story.until(lambda: all(is_known(machine) for machine in story.machines))
        (source,) = story.state(0).replicas
        target = source % 4 + 1
        before = story.machines[source - 1]
        story.loop.slow_down(before.name, 1e6)
        request = produce_request(0, batch_of([b"x"]), timeout_ms=60_000)
        client = SimClient(before.name, PORT, timeout_s=60)
        waiting = story.loop.spawn("producer", client.call(ApiKey.PRODUCE, request, 10))
        story.let_pass(0.2)
        assert not waiting.done()
        assert story.move(0, [target]) is ErrorCode.NONE
        answer = story.loop.run_until_complete(waiting)
        told = answer.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = story.state(0)
        assert (leader.leader, leader.leader_epoch) == (
            told.current_leader.leader_id,
            told.current_leader.leader_epoch,
        )
        assert endpoints(answer) == [(target, story.machines[target - 1].name, PORT)]
