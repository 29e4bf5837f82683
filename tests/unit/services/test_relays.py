"""Which pumps run: one for each route from a partition that is led here, in whatever order the news comes."""

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.storage.logs import opened

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.image import ClusterImage, ImageDelta
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable, Topic
from penstock.services.relay import relays as module
from penstock.services.relay.relays import Relays
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop

OURS, OTHER = b"o" * 16, b"n" * 16
KIND, LATER = 1, 2
ROUTE = RelayRoute(KIND, OURS, 0, OTHER, 4)
SECOND = RelayRoute(LATER, OURS, 0, OURS, 1)


class NoSyncer:
    def request(self, partition: Partition) -> None:
        pass


class Scene:
    def __init__(self, loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = loop
        self.running: list[RelayRoute] = []
        self.ready = True
        self.table = PartitionTable()
        log = opened(MemFiles()).log
        self.partition = Partition("t", OURS, 0, log, 1, NoSyncer(), sync_before_ack=False)
        config = TopicConfig.resolve({}, BrokerConfig.resolve({"log.dirs": "/data"}))
        self.table.add(Topic("t", OURS, config, {0: self.partition}))
        scene = self

        class FakePump:
            def __init__(self, source: Any, target: Any, moved: object) -> None:
                self._route = target._route

            async def run(self) -> None:
                scene.running.append(self._route)
                try:
                    await asyncio.Event().wait()
                finally:
                    scene.running.remove(self._route)

        monkeypatch.setattr(module, "Pump", FakePump)
        source: Any = object()
        sources = {kind: lambda partition: source if self.ready else None for kind in (KIND, LATER)}
        none: Any = None
        self.relays = Relays(1, ClusterImage(), self.table, none, none, sources)
        loop.spawn("relays", self.relays.run())

    def now(self) -> list[RelayRoute]:
        self.loop.run_for(0.01)
        return self.running


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with SimLoop(1) as loop:
        yield Scene(loop, monkeypatch)


def test_a_route_that_is_registered_after_its_source_is_led_gets_its_pump(scene: Scene) -> None:
    scene.relays.role_changed(scene.partition)
    assert scene.now() == []
    scene.table.routes.register(KIND, OURS, [ROUTE])
    assert scene.now() == [ROUTE]
    scene.table.routes.register(LATER, OURS, [SECOND])
    assert scene.now() == [ROUTE, SECOND]
    scene.table.routes.register(KIND, OURS, [])
    assert scene.now() == [SECOND]


def test_who_is_not_ready_as_a_source_is_asked_again_when_its_role_changes(scene: Scene) -> None:
    scene.ready = False
    scene.table.routes.register(KIND, OURS, [ROUTE])
    assert scene.now() == []
    scene.ready = True
    scene.relays.role_changed(scene.partition)
    assert scene.now() == [ROUTE]


def test_pumps_end_with_leading_and_with_the_topic(scene: Scene) -> None:
    scene.table.routes.register(KIND, OURS, [ROUTE])
    assert scene.now() == [ROUTE]
    scene.partition.is_leader = False
    scene.relays.role_changed(scene.partition)
    assert scene.now() == []
    scene.partition.is_leader = True
    scene.relays.role_changed(scene.partition)
    assert scene.now() == [ROUTE]
    scene.relays.image_changed(ImageDelta(topics_gone=(cast("Any", SimpleNamespace(id=OURS)),)))
    assert scene.now() == []


def test_a_change_costs_no_look_from_each_pump_at_all_the_others(scene: Scene) -> None:
    many = [RelayRoute(KIND, OURS, 0, OTHER, index) for index in range(4000)]
    scene.table.routes.register(KIND, OURS, many)
    assert len(scene.now()) == len(many)
    began = time.process_time()
    scene.relays.role_changed(scene.partition)
    assert len(scene.now()) == len(many)
    assert time.process_time() - began < 0.8  # seconds, where each looks at all the others
