"""When a broker has stopped, or has given up a start, no thread of it touches files that are the next one's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.storage.data_dir import DataDir
from penstock.storage.deletion import Deletion
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics

SEEDS = range(10)


class OneBroker(Scene):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(
            loop, {"log.initial.task.delay.ms": "10", "log.retention.check.interval.ms": "50"}, brokers=1
        )

    @property
    def machine(self) -> SimBroker:
        return self.machines[0]

    def begin(self) -> None:
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)

    def create(self, configs: dict[str, str]) -> None:
        self.do(create_topic(self.client("admin"), 1, configs))
        self.loop.run_until(lambda: self._state(0).leader == 1 and self.machine.ready)

    def stop(self) -> None:
        assert self.machine.broker is not None
        self.loop.run_until_complete(self.loop.spawn(self.machine.name, self.machine.broker.stop()))

    def delete_topic(self) -> None:
        request = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=TOPIC)], timeout_ms=1000
        )
        self.do(SimClient(self.machine.name, PORT).call(ApiKey.DELETE_TOPICS, request, 6))


@contextmanager
def late_jobs(machine: SimBroker) -> Iterator[list[str]]:
    """What threads did while nobody held the data dir."""
    broker = machine.broker
    assert broker is not None
    late: list[str] = []

    def watch(owner: type, name: str) -> Any:
        honest = getattr(owner, name)

        def job(self: object, *args: object) -> object:
            if broker.data_dir._lock is None:
                late.append(name)
            return honest(self, *args)

        return patch.object(owner, name, job)

    with (
        watch(DataDir, "empty_trash"),
        watch(DataDir, "discard_topic"),
        watch(Deletion, "hide"),
        watch(Deletion, "unlink"),
    ):
        yield late


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_was_just_deleted_is_gone_before_the_broker_is(seed: int) -> None:
    with SimLoop(seed) as loop:
        scene = OneBroker(loop)
        scene.begin()
        scene.create({})
        with late_jobs(scene.machine) as late:
            loop.slow_down(scene.machine.name, 1000)
            scene.delete_topic()
            scene.stop()
            loop.run_for(60)
        assert late == []


@pytest.mark.parametrize("seed", SEEDS)
def test_what_retention_deletes_is_not_touched_any_more_behind_a_stop(seed: int) -> None:
    with SimLoop(seed) as loop:
        scene = OneBroker(loop)
        scene.begin()
        scene.create({"retention.ms": "1", "internal.segment.bytes": "100", "file.delete.delay.ms": "100"})
        with late_jobs(scene.machine) as late:
            for _ in range(4):
                scene.produce(1)
            loop.slow_down(scene.machine.name, 200)
            scene.let_pass(0.05 + seed * 0.02)
            scene.stop()
            loop.run_for(60)
        assert late == []
