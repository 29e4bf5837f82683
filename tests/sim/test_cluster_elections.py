"""Leaders that come and go in ways that chance seldom finds, told one by one."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from tests.sim.cluster_clients import Violation, create_topic
from tests.sim.cluster_planted import stands_back_with_an_unsynced_end
from tests.sim.cluster_story import replica_of, watched
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.controller.log_end_election import LogEnds
from penstock.coordination.metadata import PartitionKey
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.server.cluster import ClusterMember
from penstock.storage.layout import segment_name
from penstock.testing.sim_broker import SESSION_SECONDS
from penstock.testing.sim_loop import SimLoop


@pytest.fixture
def scene() -> Iterator[Scene]:
    with SimLoop(2) as loop:
        scene = Scene(loop, synced=True)
        scene.begin()
        yield scene


def test_where_the_topic_allows_it_the_last_one_left_leads_with_what_it_has(scene: Scene) -> None:
    scene.set_topic("unclean.leader.election.enable", "true")
    left = scene.followers()[0]
    left.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert scene.produce(-1) is ErrorCode.NONE
    others = [machine for machine in scene.machines if machine is not left]
    for machine in others:
        machine.kill()
    left.start()
    for _ in range(50):
        scene.let_pass(0.1)
    assert scene._state(0).leader == scene.machines.index(left) + 1
    for machine in others:
        machine.start()
    scene.until_whole()
    assert scene.produce(-1) is ErrorCode.NONE


def stand_back_while_a_sync_runs(scene: Scene) -> None:
    """The leader's disk is slow, and it does not hear in time that its session is over."""
    leader = scene.leader()
    scene.set_topic("penstock.ack.after", "synced")
    scene.let_pass(0.5)
    with watched(scene.history):
        scene.loop.slow_down(leader.name, 1_000_000)
        scene.produce(1, at=leader)
        leader.cut_off()
        scene.let_pass(SESSION_SECONDS * 2)
        leader.reach_store()
        scene.let_pass(2)
        scene.loop.quicken(leader.name)
        scene.let_pass(30)
        scene.until_whole()


def test_who_stands_back_says_it_has_only_what_is_durable(scene: Scene) -> None:
    stand_back_while_a_sync_runs(scene)


def test_the_checker_finds_one_that_says_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_back_with_an_unsynced_end(monkeypatch)
    with pytest.raises(Violation, match="not durable"):
        stand_back_while_a_sync_runs(scene)


def test_one_whose_files_went_behind_its_back_does_not_lead_those_that_are_whole(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    victim, others = scene.leader(), scene.followers()
    for machine in (*others, victim):
        machine.stop()
    log = victim.data / "topics" / TOPIC / "Partition-0" / segment_name(0, ".log")
    file = victim.files.open(log)
    file.truncate(file.size() // 4)  # to the end of the first batch: all four are alike
    file.close()
    victim.start()
    scene.let_pass(5)
    for machine in others:
        machine.start()
    scene.until_whole()
    assert f"{TOPIC}-0 HAS LOST the offsets 1 to 3" in caplog.text
    assert {replica_of(machine, 0).log.end_offset for machine in scene.machines} == {4}


def test_a_suspect_that_does_not_answer_holds_up_no_election(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lost their power at once, and one of them does not tell the controller how long its log is."""
    asked: list[int] = []
    honest = ClusterMember._log_ends

    async def hanging(
        cluster: ClusterMember, broker: BrokerRegistration, wanted: Sequence[PartitionKey]
    ) -> LogEnds:
        asked.append(broker.id)
        if broker.id == 3:
            await asyncio.sleep(60)
        return await honest(cluster, broker, wanted)

    monkeypatch.setattr(ClusterMember, "_log_ends", hanging)
    for machine in scene.machines:
        machine.power_cut()
    for machine in scene.machines:
        machine.start()
    assert scene._wait_until(lambda: 3 in asked)
    assert scene._wait_until(lambda: all(machine.ready for machine in scene.machines)), "a start waits for it"
    scene.do(create_topic(scene.client("admin"), 3, {}, "other"))
    controller = next(
        machine
        for machine in scene.machines
        if machine.broker and machine.broker.cluster.controller.is_active
    )
    assert controller.broker is not None
    image = controller.broker.metadata.image
    leaders = {state.leader for state in image.topics["other"].partitions}
    killed = max(leader for leader in leaders if scene.machines[leader - 1] is not controller)
    scene.machines[killed - 1].kill()
    assert scene._wait_until(
        lambda: all(partition.leader != killed for partition in image.topics["other"].partitions)
    )
