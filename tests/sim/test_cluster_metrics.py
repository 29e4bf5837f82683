"""What the brokers of a cluster tell of it, in good and in bad times."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_clients import PARTITIONS, TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.server.metrics_cluster import ClusterCollector
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop


class Watched(Scene):
    def read(self, machine: SimBroker) -> dict[str, float]:
        assert machine.broker is not None
        return {
            sample.name.removeprefix("penstock_"): sample.value
            for family in ClusterCollector(machine.broker).collect()
            for sample in family.samples
            if not sample.labels
        }

    def total(self, name: str) -> float:
        return sum(self.read(machine)[name] for machine in self.machines if machine.ready)


@pytest.fixture
def scene() -> Iterator[Watched]:
    with SimLoop(1) as loop:
        scene = Watched(loop)
        scene.begin()
        scene.loop.run_until(lambda: scene.total("leader_count") == PARTITIONS)
        yield scene


def test_a_whole_cluster_has_nothing_to_report(scene: Watched) -> None:
    assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    assert scene.total("active_controller") == 1
    assert scene.total("partition_count") == PARTITIONS * len(scene.machines)
    for name in (
        "under_replicated_partitions", "under_min_isr_partitions", "offline_partitions", "reassigning_partitions",
        "max_follower_lag_records", "isr_shrinks_total",
    ):  # fmt: skip
        assert scene.total(name) == 0, name


def test_replicas_that_are_missed_show_and_pass_away(scene: Watched) -> None:
    leader = scene.leader()
    others = scene.followers()
    others[0].kill()
    scene.let_pass(SESSION_SECONDS + 1)
    expands = scene.total("isr_expands_total")
    assert scene.total("under_replicated_partitions") == PARTITIONS
    assert scene.total("under_min_isr_partitions") == 0
    assert scene.read(leader)["isr_shrinks_total"] > 0
    assert scene.produce(-1) is ErrorCode.NONE
    assert scene.read(leader)["max_follower_lag_records"] == 1
    others[1].kill()
    scene.let_pass(SESSION_SECONDS + 1)
    assert scene.total("under_min_isr_partitions") == PARTITIONS
    for machine in others:
        machine.start()
    scene.until_whole()
    scene.loop.run_until(lambda: scene.total("under_replicated_partitions") == 0)
    assert scene.total("isr_expands_total") > expands


def test_partitions_that_nobody_leads_are_told_once_by_the_controller(scene: Watched) -> None:
    for machine in scene.machines[:2]:
        machine.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    scene.machines[2].kill()
    scene.machines[0].start()
    scene.loop.run_until(lambda: scene.machines[0].ready)
    scene.let_pass(SESSION_SECONDS + 1)
    # The last one that was in sync is not there, and nobody else may lead.
    assert scene.total("offline_partitions") == PARTITIONS
    assert TOPIC.encode() in scene.machines[0].broker.table.by_name  # type: ignore[union-attr]
