"""DescribeQuorum in a cluster: whoever is asked tells of the one controller, and a new one has a higher epoch."""

from typing import Any

from tests.sim.test_cluster_scenes import Scene

from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)

VERSION = 2


def described(scene: Scene, at: SimBroker) -> Any:
    wanted = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData()])
    request = DescribeQuorumRequest(topics=[wanted])
    answer = scene.do(SimClient(at.name, PORT).call(ApiKey.DESCRIBE_QUORUM, request, VERSION))
    [partition] = answer.topics[0].partitions
    assert partition.error_code == 0
    assert [voter.replica_id for voter in partition.current_voters] == [partition.leader_id]
    [node] = answer.nodes
    assert (node.node_id, node.listeners[0].host) == (partition.leader_id, f"broker-{partition.leader_id}")
    return partition


def test_all_brokers_tell_of_the_same_controller_and_of_the_next_one() -> None:
    with SimLoop(1) as loop:
        scene = Scene(loop)
        scene.begin()
        scene.until_whole()
        told = [described(scene, machine) for machine in scene.machines]
        [(first, epoch)] = {(quorum.leader_id, quorum.leader_epoch) for quorum in told}
        offsets = [quorum.high_watermark for quorum in told]
        scene.machines[first - 1].kill()
        others = [machine for machine in scene.machines if machine.running]
        scene.loop.run_until(lambda: any(is_controller(machine) for machine in others))
        scene.let_pass(1)
        told = [described(scene, machine) for machine in others]
        [(second, next_epoch)] = {(quorum.leader_id, quorum.leader_epoch) for quorum in told}
        assert second != first
        assert next_epoch > epoch
        assert min(quorum.high_watermark for quorum in told) > max(offsets)


def is_controller(machine: SimBroker) -> bool:
    return machine.broker is not None and machine.broker.services.controller.is_active
