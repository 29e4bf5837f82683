"""Replicas that lag are copied no faster than told, at the leader's end or the follower's; those in sync as ever."""

import pytest
from tests.sim.messages import PRODUCERS, TOPIC
from tests.sim.test_cluster_moves import BY_HAND, telling
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import SESSION_SECONDS
from penstock.testing.sim_loop import SimLoop

ENDS = pytest.mark.parametrize("end", ["leader", "follower"])
RATE = 500


def rate_of(end: str) -> str:
    return f"{end}.replication.throttled.rate"


@ENDS
def test_new_replicas_are_copied_no_faster_than_the_throttle_says(end: str) -> None:
    with telling(1, {rate_of(end): str(RATE)} | BY_HAND) as story:
        story.begin_with(4, replicas=1)
        story.until(lambda: len(story.history.acknowledged) > 300)
        for number in range(PRODUCERS):
            story.loop.crash(f"producer-{number}")
        size = story.replica(story.state(0).leader, 0).log.size_bytes
        assert size > 5000
        began = story.loop.time()
        target = story.state(0).replicas[0] % 4 + 1
        assert story.move(0, [target]) is ErrorCode.NONE
        story.until(lambda: story.state(0).replicas == (target,), seconds=300)
        took_s = story.loop.time() - began
        # A second's worth is saved up at the beginning, and the last answer is not waited for.
        assert size / RATE - 3 < took_s < size / RATE + 5
        story.check_data()


@ENDS
def test_a_throttle_that_is_raised_is_not_waited_for(end: str) -> None:
    with telling(1, {rate_of(end): "1"} | BY_HAND) as story:
        story.begin_with(4, replicas=1)
        story.until(lambda: len(story.history.acknowledged) > 100)
        for number in range(PRODUCERS):
            story.loop.crash(f"producer-{number}")
        target = story.state(0).replicas[0] % 4 + 1
        assert story.move(0, [target]) is ErrorCode.NONE
        story.until(lambda: story.replica(target, 0).log.end_offset > 0)
        story.let_pass(2)
        assert story.state(0).adding == (target,), "an hour and more at this rate"
        for number in range(1, 5):
            story.configure(number, rate_of(end), str(10**9))
        story.until(lambda: story.state(0).replicas == (target,), seconds=5)


@ENDS
def test_a_replica_that_is_named_catches_up_slowly_and_holds_up_nobody(end: str) -> None:
    with SimLoop(1) as loop:
        scene = Scene(loop, {rate_of(end): str(RATE)})
        scene.begin()
        # Named while it is in sync: nothing is slow yet.
        scene.set_topic(f"{end}.replication.throttled.replicas", "*")
        away = scene.followers()[0]
        away.kill()
        scene.let_pass(SESSION_SECONDS + 0.5)
        began = loop.time()
        for _ in range(60):
            assert scene.produce(-1) is ErrorCode.NONE
        assert loop.time() - began < 2, "the one in sync is not throttled"
        broker = scene.leader().broker
        assert broker is not None
        size = broker.table.by_name[TOPIC.encode()].partitions[0].log.size_bytes
        assert size > 4 * RATE
        away.start()
        began = loop.time()
        scene.let_pass(1)
        assert scene.produce(-1) is ErrorCode.NONE
        scene.until_whole()
        assert size / RATE - 3 < loop.time() - began < size / RATE + 5
