"""A topic is refused where one of the brokers that would get its replicas has no room, whoever plans it."""

from typing import Any

import pytest
from tests.sim.messages import create_request
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PARTITIONS_PER_FILE_MAX
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey


@pytest.fixture(params=range(3))
def scene(request: pytest.FixtureRequest) -> Any:
    with SimLoop(request.param) as loop:
        scene = Scene(loop)
        scene.begin()
        yield scene


def not_the_controller(scene: Scene) -> SimBroker:
    broker = scene.machines[0].broker
    assert broker is not None
    controller = broker.metadata.image.controller
    return next(machine for number, machine in enumerate(scene.machines, 1) if number != controller)


def create(scene: Scene, partitions: int = 1) -> tuple[ErrorCode, str]:
    request = create_request({}, name="late", replicas=len(scene.machines))
    request.topics[0].num_partitions = partitions
    answer = scene.do(SimClient(scene.machines[0].name, PORT).call(ApiKey.CREATE_TOPICS, request)).topics[0]
    return ErrorCode(answer.error_code), answer.error_message or ""


@pytest.mark.parametrize("short", ["space", "inodes"])
def test_a_follower_with_a_full_disk_gets_no_replica(scene: Scene, short: str) -> None:
    full = not_the_controller(scene)
    if short == "space":
        full.files.fill_up(0)
    else:
        full.files.inodes_left = 0
    number = scene.machines.index(full) + 1
    code, message = create(scene)
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"The disk of broker {number} has no space left" in message
    full.files.make_room()
    full.files.inodes_left = 1000
    assert create(scene) == (ErrorCode.NONE, "")


def test_a_follower_says_how_many_partitions_it_can_serve(scene: Scene) -> None:
    short = not_the_controller(scene)
    short.kill()
    short.files.limit_files(2)
    short.start()
    scene.loop.run_until(lambda: short.ready)
    scene.until_whole()
    code, message = create(scene, 2 * PARTITIONS_PER_FILE_MAX)
    assert code is ErrorCode.POLICY_VIOLATION
    assert f"Broker {scene.machines.index(short) + 1} would have" in message
    assert "ulimit -n" in message


def test_one_that_does_not_answer_keeps_nobody_from_creating(scene: Scene) -> None:
    silent = not_the_controller(scene)
    for other in scene.machines:
        if other is not silent:
            scene.loop.network.stall(other.name, silent.name)
    asked = next(machine for machine in scene.machines if machine is not silent)
    request = create_request({}, name="late", replicas=len(scene.machines), timeout_ms=10_000)
    answer = scene.do(SimClient(asked.name, PORT).call(ApiKey.CREATE_TOPICS, request)).topics[0]
    assert answer.error_code == ErrorCode.NONE
