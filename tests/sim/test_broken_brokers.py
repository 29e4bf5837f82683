"""A broker whose task ended that never should: it may be deaf, so it goes at once, and others lead."""

import pytest
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.image import ImageDelta
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.server.broker import Broker
from penstock.server.failure_detector import FailureDetector
from penstock.testing.sim_loop import SimLoop

AT_ONCE_SECONDS = 1.0


def break_a_leader(monkeypatch: pytest.MonkeyPatch, seed: int) -> float:
    """For how long it goes on being there as a leader that hears of nothing any more."""
    with SimLoop(seed) as loop:
        scene = Scene(loop)
        scene.begin()
        leader = scene.leader()
        assert leader.broker is not None
        deaf = leader.broker.cluster.failure_detector  # with it goes the task that follows the metadata
        leader.may_break = True
        honest = FailureDetector._wanted

        def wanted(detector: FailureDetector) -> list[BrokerRegistration]:
            if detector is deaf:
                raise RuntimeError("nobody caught this")
            return honest(detector)

        monkeypatch.setattr(FailureDetector, "_wanted", wanted)
        news = leader.broker.image_news

        async def tell() -> None:
            news.tell(ImageDelta(brokers=True))

        loop.run_until_complete(loop.spawn(leader.name, tell()))
        loop.run_until(lambda: leader.broker is None or leader.broker.broken.is_set())
        began = loop.time()
        loop.run_until(lambda: not leader.ready)
        took = loop.time() - began
        scene.let_pass(5)
        scene.until_whole()
        assert scene.produce(-1) is ErrorCode.NONE
        return took


@pytest.mark.parametrize("seed", range(3))
def test_a_broken_broker_goes_at_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert break_a_leader(monkeypatch, seed) < AT_ONCE_SECONDS


def test_the_checker_finds_one_that_hands_over_first(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Broker.stop

    async def stop(broker: Broker) -> None:
        await broker.cluster.hand_over()
        await honest(broker)

    monkeypatch.setattr(Broker, "stop", stop)
    assert break_a_leader(monkeypatch, 0) >= AT_ONCE_SECONDS
