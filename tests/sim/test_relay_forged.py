"""A relay's position is a broker's word. Said by anybody else, what is written next would be dropped as moved."""

import pytest
from tests.sim.as_broker import AsBroker, retired_route
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_retiring import INTO, RETIRED, RetiringStory
from tests.sim.messages import TOPIC

from penstock.core.error_codes import ErrorCode
from penstock.records.relay import RelayPlace, position_batch, retired_source
from penstock.testing.sim_loop import SimLoop
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_deliver import RelayDeliverRequest

LATEST = 2**31 - 1


@pytest.mark.parametrize(
    ("registrations_ahead", "epoch", "expected"),
    [
        (1, LATEST, ErrorCode.STALE_BROKER_EPOCH),
        (-1, LATEST, ErrorCode.STALE_BROKER_EPOCH),
        (0, LATEST, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, 0, ErrorCode.NONE),
    ],
)
def test_a_position_counts_only_from_a_registered_broker_and_of_an_epoch_that_is(
    registrations_ahead: int, epoch: int, expected: ErrorCode
) -> None:
    with SimLoop(1) as loop:
        story = RetiringStory(loop, synced=False)
        for machine in story.machines:
            machine.start()
        loop.run_until(lambda: all(machine.ready for machine in story.machines))
        loop.run_until_complete(loop.spawn("admin", create_topic(story.client("admin"), 3, {})))
        story.let_pass(1)
        story.begin_to_retire()
        loop.run_until(story.is_retired)
        story.let_pass(1)
        target = story.leader(INTO)
        assert target is not None
        assert target.broker is not None
        image = target.broker.metadata.image
        sender = AsBroker(image, 1, image.brokers[1].epoch + registrations_ahead)
        position = bytes(position_batch(retired_source(RETIRED), RelayPlace(epoch, 0), 1))
        request = RelayDeliverRequest(retired_route(image.topics[TOPIC].id, RETIRED, INTO), 1000, position)
        node = story.machines.index(target) + 1
        asking = sender.ask(node, target.name, PeerApi.RELAY_DELIVER, request)
        answer = loop.run_until_complete(loop.spawn("sender", asking))
        assert answer.error_code == expected
