"""Brokers get a listener of their own one after the other, while clients stay on theirs (ADR 16)."""

from typing import Any

import pytest
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.metadata import MetadataRequest

BETWEEN_PORT = PORT + 1


def with_two(machine: SimBroker) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{machine.name}:{PORT},BROKERS://{machine.name}:{BETWEEN_PORT}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }


def told(scene: Scene, at: SimBroker, port: int) -> list[tuple[str, int]]:
    answer: Any = scene.do(SimClient(at.name, port).call(ApiKey.METADATA, MetadataRequest(topics=[]), 12))
    return [(broker.host, broker.port) for broker in answer.brokers]


@pytest.mark.parametrize("seed", range(2))
def test_the_listener_between_brokers_is_changed_in_one_round(seed: int) -> None:
    with SimLoop(seed) as loop:
        scene = Scene(loop)
        scene.begin()
        all_of_them = [(machine.name, PORT) for machine in scene.machines]
        for machine in scene.machines:
            machine.stop()
            machine._settings |= with_two(machine)
            machine.start()
            scene.until_whole()
            # Those with and those without reach each other, and clients reach all.
            assert scene.produce(-1, timeout_ms=5000) is ErrorCode.NONE
            for other in scene.machines:
                assert told(scene, other, PORT) == all_of_them
        between = [(machine.name, BETWEEN_PORT) for machine in scene.machines]
        assert [told(scene, machine, BETWEEN_PORT) for machine in scene.machines] == [between] * 3
        assert scene.machines[0].broker is not None
        registered = scene.machines[0].broker.services.image.brokers.values()
        assert sorted((registration.host, registration.port) for registration in registered) == between


def test_clients_of_a_listener_that_not_all_have_yet_are_shown_those_that_do() -> None:
    with SimLoop(1) as loop:
        scene = Scene(loop)
        scene.begin()
        first = scene.machines[0]
        first.stop()
        first._settings |= with_two(first)
        first.start()
        scene.until_whole()
        assert told(scene, first, BETWEEN_PORT) == [(first.name, BETWEEN_PORT)]
