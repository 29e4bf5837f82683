"""Bounds on what one request may say, scaled down: what brokers ask of each other stays below them, however many."""

import pytest
from tests.sim.messages import create_request
from tests.sim.test_cluster_scenes import Scene

from penstock.frontends.kafka import dispatcher, large_requests
from penstock.replication import isr_keeper
from penstock.services.peers import broker_client
from penstock.testing.sim_broker import PORT, SESSION_SECONDS
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

PARTITIONS = 60
ENTRIES_MAX = 60
_BACK_SECONDS = 60


class BoundedScene(Scene):
    def short(self) -> list[int]:
        """Partitions that lack somebody in sync."""
        image = next(machine.broker for machine in self.machines if machine.broker is not None).metadata.image
        return [number for number, state in enumerate(image.topics["many"].partitions) if len(state.isr) < 3]

    def until(self, short: bool) -> None:
        for _ in range(_BACK_SECONDS):
            if bool(self.short()) is short:
                return
            self.let_pass(1)
        raise AssertionError(f"short of replicas: {self.short()}")


@pytest.mark.parametrize("everybody", [False, True])
def test_replicas_are_in_sync_again_whatever_many_there_are(
    everybody: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker is killed and comes back; or all are, so that the controller asks each for the ends of its logs."""
    for bound in ("REQUEST_ENTRIES_MAX", "REQUEST_ENTRIES_WHOLE_MAX"):
        monkeypatch.setattr(large_requests, bound, ENTRIES_MAX)
    # Whatever is not tiny counts as large.
    for module in (dispatcher, large_requests):
        monkeypatch.setattr(module, "LARGE_REQUEST_BYTES", 500)
    monkeypatch.setattr(dispatcher, "PORTIONED_REQUEST_BYTES", 500)
    monkeypatch.setattr(isr_keeper, "ISR_PROPOSALS_MAX", ENTRIES_MAX // 5)
    monkeypatch.setattr(broker_client, "PEER_ENTRIES_MAX", ENTRIES_MAX // 2)
    with SimLoop(1) as loop:
        scene = BoundedScene(loop)
        scene.begin()
        controller = scene.machines[0].broker.metadata.image.controller  # type: ignore[union-attr]
        request = create_request({"min.insync.replicas": "2"}, name="many", replicas=3)
        request.topics[0].num_partitions = PARTITIONS
        scene.do(SimClient(scene.machines[controller - 1].name, PORT).call(ApiKey.CREATE_TOPICS, request))
        scene.until(short=False)
        victims = [
            machine
            for number, machine in enumerate(scene.machines, 1)
            if everybody or number == controller % len(scene.machines) + 1
        ]
        for machine in victims:
            machine.kill()
        if not everybody:
            scene.let_pass(SESSION_SECONDS)
            scene.until(short=True)
        for machine in victims:
            machine.start()
        loop.run_until(lambda: all(machine.ready for machine in scene.machines))
        scene.until(short=False)
