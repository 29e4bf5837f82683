"""A relay's word is a broker's. Said by anybody else, what is written next would be dropped as moved."""

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_retiring import INTO, RETIRED, RetiringStory
from tests.sim.messages import TOPIC, produce_request

from penstock.core.error_codes import ErrorCode
from penstock.records.relay import RelayPlace, position_batch, retired_source
from penstock.services.relay.inbox import RELAYED, sender_id
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

LATEST = 2**31 - 1


@pytest.mark.parametrize(
    ("says", "epoch", "expected"),
    [
        ("nothing", LATEST, ErrorCode.STALE_BROKER_EPOCH),
        ("another epoch", LATEST, ErrorCode.STALE_BROKER_EPOCH),
        ("what is registered", LATEST, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ("what is registered", 0, ErrorCode.NONE),
    ],
)
def test_a_word_counts_only_from_a_registered_broker_and_of_an_epoch_that_is(
    says: str, epoch: int, expected: ErrorCode
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
        registered = image.brokers[1].epoch
        mark = {
            "nothing": RELAYED,
            "another epoch": sender_id(1, registered + 1),
            "what is registered": sender_id(1, registered),
        }[says]
        word = bytes(position_batch(retired_source(RETIRED), RelayPlace(epoch, 0), 1))
        request = produce_request(INTO, word, topic_id=image.topics[TOPIC].id)
        request.transactional_id = mark
        asking = SimClient(target.name, PORT).call(ApiKey.PRODUCE, request, 13)
        answer = loop.run_until_complete(loop.spawn("client", asking))
        assert answer.responses[0].partition_responses[0].error_code == expected
