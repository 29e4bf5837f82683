"""How far behind a follower may be and stay in sync, counted in records: `replica.lag.max.messages`."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.sim.test_cluster_scenes import Scene, send

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop

LAG_RECORDS_MAX = "replica.lag.max.messages"
LAG_SECONDS_MAX = 6


class Lagging(Scene):
    def load(self, records: int, pause_s: float) -> None:
        self.spawn("producer-0", keep_sending(self.leader().name, records, pause_s))

    def isr(self) -> tuple[int, ...]:
        return self._state(0).isr

    def shrinks(self) -> int:
        return sum(
            machine.broker.cluster.keeper.shrinks for machine in self.machines if machine.broker is not None
        )


async def keep_sending(host: str, records: int, pause_s: float) -> None:
    client = SimClient(host, PORT)
    while True:
        answer = await send(host, 1, 1000, client, records)
        assert answer.error_code == ErrorCode.NONE
        await asyncio.sleep(pause_s)


@pytest.fixture(params=range(3))
def scene(request: pytest.FixtureRequest) -> Iterator[Lagging]:
    with SimLoop(request.param) as loop:
        scene = Lagging(loop, {"replica.lag.time.max.ms": str(LAG_SECONDS_MAX * 1000)})
        scene.begin()
        yield scene


def test_a_follower_that_is_slow_but_steady_is_out_of_sync_only_by_count(scene: Lagging) -> None:
    slow = scene.followers()[0]
    scene.loop.network.set_latency(scene.leader().name, slow.name, 0.4, 0.5)
    scene.load(1, 0.02)
    scene.let_pass(3 * LAG_SECONDS_MAX)
    assert len(scene.isr()) == 3, "it has everything that is a second old"
    scene.set_topic(LAG_RECORDS_MAX, "20")
    scene.let_pass(LAG_SECONDS_MAX)
    assert scene.machines.index(slow) + 1 not in scene.isr()
    assert len(scene.isr()) == 2
    shrinks = scene.shrinks()
    scene.let_pass(3 * LAG_SECONDS_MAX)
    assert (len(scene.isr()), scene.shrinks()) == (2, shrinks), "it does not come in to be taken out again"
    scene.loop.crash("producer-0")
    scene.until_whole()


def test_bursts_take_nobody_out(scene: Lagging) -> None:
    scene.set_topic(LAG_RECORDS_MAX, "20")
    for follower in scene.followers():
        scene.loop.network.set_latency(scene.leader().name, follower.name, 0.02, 0.05)
    shrinks = scene.shrinks()
    scene.load(30, 0.3)
    scene.let_pass(20 * LAG_SECONDS_MAX)
    assert (len(scene.isr()), scene.shrinks()) == (3, shrinks)


def test_a_new_leader_waits_for_its_followers_to_show_where_they_are(scene: Lagging) -> None:
    scene.set_topic(LAG_RECORDS_MAX, "2")
    for _ in range(5):
        assert scene.produce(-1) is ErrorCode.NONE
    before = scene.leader()
    before.kill()
    fewest = 3
    while scene.leader() is before or not scene.leader().running or scene.produce(-1) is not ErrorCode.NONE:
        scene.let_pass(0.005)
        fewest = min(fewest, len(scene.isr()))
    assert fewest == 2
