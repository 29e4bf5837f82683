"""What the brokers of a cluster tell of it, in good and in bad times."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_retiring import RETIRED, RetiringStory
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import PARTITIONS, PRODUCERS, TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.server.metrics_cluster import ClusterCollector
from penstock.testing.sim_broker import SESSION_SECONDS, SimBroker
from penstock.testing.sim_loop import SimLoop


class Watched(Story):
    def read(self, machine: SimBroker) -> dict[str, float]:
        """What is told of partitions is summed up."""
        assert machine.broker is not None
        found: dict[str, float] = {}
        for family in ClusterCollector(machine.broker).collect():
            for sample in family.samples:
                name = sample.name.removeprefix("penstock_")
                found[name] = found.get(name, 0) + sample.value
        return found

    def total(self, name: str) -> float:
        return sum(self.read(machine).get(name, 0) for machine in self.machines if machine.ready)


class WatchedScene(Watched, Scene):
    pass


class WatchedRetiring(Watched, RetiringStory):
    pass


@pytest.fixture
def scene() -> Iterator[WatchedScene]:
    with SimLoop(1) as loop:
        scene = WatchedScene(loop)
        scene.begin()
        scene.loop.run_until(lambda: scene.total("led_partitions") == PARTITIONS)
        yield scene


def test_a_whole_cluster_has_nothing_to_report(scene: WatchedScene) -> None:
    assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    assert scene.total("active_controller") == 1
    assert scene.total("partitions") == PARTITIONS * len(scene.machines)
    for name in (
        "under_replicated_partitions", "under_min_isr_partitions", "offline_partitions", "reassigning_partitions",
        "max_follower_lag_records", "isr_shrinks_total",
    ):  # fmt: skip
        assert scene.total(name) == 0, name


def test_replicas_that_are_missed_show_and_pass_away(scene: WatchedScene) -> None:
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


def test_partitions_that_nobody_leads_are_told_once_by_the_controller(scene: WatchedScene) -> None:
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


def test_relays_tell_what_they_moved_and_what_is_left() -> None:
    with SimLoop(1) as loop:
        story = WatchedRetiring(loop, synced=False)
        story.begin()
        story.let_pass(3)
        for name in ("retired_partitions", "relay_moved_records_total", "relay_moved_bytes_total"):
            assert story.total(name) == 0, name
        story.begin_to_retire()
        loop.run_until(story.is_retired)
        loop.run_until(lambda: story.total("relay_moved_records_total") > 20)
        loop.run_until(lambda: story.total("relay_lag_records") > 0)
        for number in range(PRODUCERS):
            loop.crash(f"producer-{number}")
        story.until_moved()
        assert story.total("retired_partitions") == 1
        assert story.total("relay_lag_records") == 0
        source = story.leader(RETIRED)
        assert source is not None
        moved = story.read(source)["relay_moved_records_total"]
        retirement = story.replica(source, RETIRED)
        assert retirement is not None
        assert moved == story.total("relay_moved_records_total") == retirement.log.end_offset - story.limit
        assert story.total("relay_moved_bytes_total") == len(
            bytes_below(retirement, retirement.log.end_offset, story.limit)
        )
