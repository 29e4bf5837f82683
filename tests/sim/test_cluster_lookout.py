"""Who died is missed at once; who was only taken for dead comes back, and nothing is lost by it (ADR 13)."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from tests.sim.cluster_story import Story
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.memory import MemoryStore, MemoryTree
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.nodes import broker_path
from penstock.coordination.registration import BrokerRegistration
from penstock.coordination.tree import Change, ConnectionLostError, Operation
from penstock.server.failure_detector import FailureDetector
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop

SEEDS = 30


class RumourStory(Story):
    """Brokers that live are often taken for dead."""

    def misfortune(self) -> None:
        teller, victim = self.rng.sample(self.machines, 2)
        if self.rng.random() < 0.5 or not teller.ready:
            super().misfortune()
        else:
            self.expel(victim, teller)
            self.let_pass(self.rng.choice([0.0, 0.02, 0.5]))

    def expel(self, victim: SimBroker, teller: SimBroker) -> None:
        assert teller.broker is not None
        metadata = teller.broker.metadata
        registered = metadata.image.brokers.get(self.machines.index(victim) + 1)
        if registered is not None:
            self.loop.spawn(teller.name, metadata.expel(registered))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_when_the_living_are_taken_for_dead(seed: int) -> None:
    with SimLoop(seed) as loop:
        RumourStory(loop).tell()


@pytest.fixture(params=range(3))
def scene(request: pytest.FixtureRequest) -> object:
    with SimLoop(request.param) as loop:
        scene = Scene(loop)
        scene.begin()
        scene.let_pass(1)  # everybody who is to be watched is
        yield scene


def controller(scene: Scene) -> int:
    broker = scene.machines[0].broker
    assert broker is not None
    return broker.services.image.controller


@pytest.mark.parametrize("controls", [True, False], ids=["the controller", "another one"])
def test_who_is_killed_is_replaced_before_its_session_ends(scene: Scene, *, controls: bool) -> None:
    victim = controller(scene) if controls else next(n for n in (1, 2, 3) if n != controller(scene))
    led = [index for index in (0, 1) if scene._state(index).leader == victim]
    killed_at = scene.loop.time()
    scene.machines[victim - 1].kill()
    others = [machine for machine in scene.machines if machine is not scene.machines[victim - 1]]

    def is_replaced() -> bool:
        images = [other.broker.services.image for other in others if other.broker is not None]
        return all(
            victim not in image.brokers
            and image.controller not in (victim, -1)
            and all(image.topics["orders"].partitions[index].leader not in (victim, -1) for index in led)
            for image in images
        )

    scene.loop.run_until(is_replaced)
    assert scene.loop.time() - killed_at < SESSION_SECONDS / 2


def test_a_leader_that_sleeps_is_left_to_its_session(scene: Scene) -> None:
    leader = scene._state(0).leader
    scene.machines[leader - 1].pause()
    scene.let_pass(SESSION_SECONDS / 2)
    assert scene._state(0).leader == leader
    scene.let_pass(2 * SESSION_SECONDS)
    assert scene._state(0).leader != leader


def test_a_connection_that_breaks_means_nothing_while_the_port_is_open(scene: Scene) -> None:
    before = list(scene.states())
    for machine in scene.machines:
        for other in scene.machines:
            if machine is not other:
                scene.loop.network.cut(machine.name, other.name)
    scene.let_pass(SESSION_SECONDS / 2)
    assert [state.leader_epoch for state in scene.states()] == [state.leader_epoch for state in before]


def test_a_broker_that_was_taken_for_dead_registers_again(scene: Scene) -> None:
    teller, victim = scene.machines[0], scene.machines[2]
    assert teller.broker is not None
    metadata = teller.broker.metadata
    registered = metadata.image.brokers[3]
    assert scene.do(metadata.expel(registered))
    scene.loop.run_until(lambda: 3 in metadata.image.brokers)
    assert metadata.image.brokers[3].epoch > registered.epoch
    assert metadata.image.brokers[3].incarnation == registered.incarnation
    assert not scene.do(metadata.expel(registered))
    assert victim.ready
    scene.until_whole()


def test_a_broker_whose_registration_went_through_unheard_registers_once_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller, victim = scene.machines[0], scene.machines[2]
    assert teller.broker is not None
    assert victim.broker is not None
    metadata, membership, tree = teller.broker.metadata, victim.broker.cluster.membership, victim.tree
    honest, lost = MemoryTree.multi, []

    async def multi(self: MemoryTree, operations: Sequence[Operation]) -> Change:
        change = await honest(self, operations)
        if self is tree and not lost and any(operation.path == broker_path(3) for operation in operations):
            lost.append(change)
            raise ConnectionLostError("no answer")
        return change

    monkeypatch.setattr(MemoryTree, "multi", multi)
    assert scene.do(metadata.expel(metadata.image.brokers[3]))
    scene.loop.run_until(lambda: bool(lost))
    scene.let_pass(1)
    assert membership.epoch == metadata.image.brokers[3].epoch > lost[0].number
    scene.until_whole()


def test_an_address_that_is_none_ends_no_lookout() -> None:
    async def watch() -> None:
        store = MetadataStore(await MemoryStore().connect(), Random(1))
        failure_detector = FailureDetector(1, store)
        for host in ("bad..host", "x" * 64):
            watching = asyncio.create_task(failure_detector._watch(BrokerRegistration(2, "b", host, 9092)))
            done, _ = await asyncio.wait([watching], timeout=0.05)
            assert not done
            watching.cancel()

    asyncio.run(watch())
