"""What a replica takes for committed after a restart: never what its leader has not committed."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_near import NEAREST
from tests.sim.cluster_story import replica_of
from tests.sim.messages import fetch_request
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

# Marks are written down at a stop alone.
_SETTINGS = {**NEAREST, "replica.high.watermark.checkpoint.interval.ms": "1000000"}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with SimLoop(2) as loop:
        scene = Scene(loop, _SETTINGS)
        scene.begin()
        scene.set_topic("min.insync.replicas", "1")
        scene.set_topic("unclean.leader.election.enable", "true")
        yield scene


def lose_what_was_committed(scene: Scene, count: int) -> tuple[SimBroker, SimBroker]:
    """So many records, by an election of the one that lacks them; returns it, and one that had marked them."""
    lacking, marked = scene.followers()
    lacking.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    for _ in range(count):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    last = scene.leader()
    marked.stop()
    last.kill()
    lacking.start()
    for _ in range(50):
        scene.let_pass(0.1)
    assert scene.leader() is lacking
    for machine in (marked, last):
        machine.start()
    scene.until_whole()
    return lacking, marked


def test_a_mark_from_before_an_unclean_election_says_nothing_of_what_came_after_it(scene: Scene) -> None:
    leader, marked = lose_what_was_committed(scene, 5)
    slow = next(follower for follower in scene.followers() if follower is not marked)
    before = replica_of(leader, 0).high_watermark
    scene.loop.network.stall(leader.name, slow.name)
    for _ in range(7):
        assert scene.produce(1) is ErrorCode.NONE
    scene.loop.run_until(lambda: replica_of(marked, 0).log.end_offset == before + 7)
    marked.kill()
    marked.start()
    scene.loop.run_until(lambda: marked.ready and replica_of(marked, 0).is_following)
    assert replica_of(leader, 0).high_watermark == before
    replica = replica_of(marked, 0)
    assert replica.log.end_offset == before + 7
    assert replica.high_watermark <= before
    request = fetch_request(0, before, max_wait_ms=0)
    answer = scene.do(SimClient(marked.name, PORT).call(ApiKey.FETCH, request)).responses[0].partitions[0]
    assert not answer.records


def test_a_mark_counts_where_the_log_is_still_the_same(scene: Scene) -> None:
    for _ in range(5):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    for machine in scene.machines:
        machine.stop()
    first = scene.machines[0]
    first.start()
    scene.loop.run_until(lambda: first.ready)
    assert replica_of(first, 0).high_watermark == 5
