"""The source of a relay loses its end: uncleanly elected leaders, who may have led before, take over what was moved.

What is acknowledged after the last such election arrives, once and in order, and no broker stops. So does what was in
the log of the leader that came out of it, be it of a leader before the last: anywhere else it could be read again.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_retiring import INTO, RETIRED
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import batch_of
from tests.sim.test_relay_commits import FAR, SETTINGS, CommitStory

from penstock.records.reader import read_all
from penstock.records.relay import RelayPlace
from penstock.replication import retirement
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.services.relay.sender import RelaySender
from penstock.storage.relay_positions import RelayPosition
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
TARGETS, SOURCES = (1, 2, 3), (4, 5, 6)


class SourceLostStory(CommitStory):
    replicas = (TARGETS, SOURCES)

    def __init__(self, loop: SimLoop) -> None:
        Story.__init__(self, loop, SETTINGS, synced=False, brokers=6)
        self.acknowledged: list[bytes] = []
        self.led_with: list[
            bytes
        ] = []  # what the last leader had in its log, behind the limit, when it began

    @property
    def configs(self) -> dict[str, str]:
        unclean = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        return {**super().configs, **unclean, "penstock.retire.grace.ms": "600000"}

    def machines_of(self, numbers: tuple[int, ...]) -> list[SimBroker]:
        return [self.machines[number - 1] for number in numbers]

    @contextmanager
    def watched(self) -> Iterator[None]:
        honest = Partition.lead

        def lead(partition: Partition, epoch: int, leading: Leading | None) -> None:
            if partition.index == RETIRED and partition.retirement is not None:
                self.led_with = _values(partition, partition.retirement.limit)
            honest(partition, epoch, leading)

        with patch.object(Partition, "lead", lead):
            yield

    async def _write(self, rng: Random) -> None:
        number = 0
        while True:
            values = [b"v-%d" % (number + at) for at in range(rng.choice([1, 2, 4, 8]))]
            number += len(values)
            await self.put("producer", RETIRED, batch_of(values))
            self.acknowledged += values
            await asyncio.sleep(rng.choice([0.0, 0.02, 0.1, 0.3]))

    def begin(self) -> None:
        """Retired before anybody wrote, so that what is moved goes at once; or later; or when one is left alone."""
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.loop.run_until_complete(self.loop.spawn("admin", self._create()))
        self.let_pass(1)
        when = self.rng.choice(["first", "first", "later", "alone", "alone"])
        if when == "first":
            self._retire()
        self.spawn("producer", self._write(self.loop.random("producer")))
        self.let_pass(self.rng.uniform(0.3, 1))
        if when == "later":
            self._retire()
        elif when == "alone":
            self.lose_end(retire=True)
            self.until_whole()

    def _retire(self) -> None:
        self.begin_to_retire()
        self.loop.run_until(self.is_retired)

    def lose_end(self, *, retire: bool = False) -> None:
        """One goes on alone; when it is gone, the others come back without what it took. It may live on meanwhile."""
        rng, leader = self.rng, self.leader(RETIRED)
        assert leader is not None
        others = [machine for machine in self.machines_of(SOURCES) if machine is not leader]
        for machine in others:
            machine.kill()
        self._wait_until(lambda: len(self._state(RETIRED).isr) == 1)
        away = self.machines_of(TARGETS) if rng.random() < 0.5 and not retire else []
        for machine in away:
            machine.kill()
        if retire:
            self.let_pass(rng.uniform(0.1, 0.5))
            self._retire()
        self.let_pass(rng.uniform(0.2, 2))
        how = rng.choice(["kill", "power", "cut"])
        if how == "cut":
            leader.cut_off()
            for machine in others:
                self.loop.network.stall(leader.name, machine.name)
        elif how == "kill":
            leader.kill()
        else:
            leader.power_cut()
        for machine in others:
            machine.start()
        for _ in range(60):
            self.let_pass(0.2)
            if self.leader(RETIRED) in others:
                break
        for machine in away:
            machine.start()
        self.let_pass(rng.uniform(0, 2))
        if rng.random() < 0.5 and not retire:  # who is elected next is the first one again
            for machine in others:
                machine.kill()
        if how == "cut":
            self.loop.network.heal_all()
            leader.reach_store()
        else:
            leader.start()
        self.let_pass(rng.uniform(1, 2))
        for machine in others:
            if not machine.running:
                machine.start()

    def until_whole(self) -> None:
        for _ in range(300):
            self.let_pass(0.1)
            if self._is_whole() and not any(state.suspects for state in self.states()):
                return
        raise Violation(f"not in sync: {list(self.states())}")

    def clean_fault(self) -> None:
        """The leader dies while the target may be away: its successor knows nothing of what was moved."""
        rng, leader = self.rng, self.leader(RETIRED)
        away = self.machines_of(TARGETS) if rng.random() < 0.6 else []
        for machine in away:
            machine.kill()
        self.let_pass(rng.uniform(0.1, 1))
        if leader is not None and leader.running:
            leader.kill()
            self.let_pass(rng.uniform(0.5, 3))
            leader.start()
        for machine in away:
            machine.start()
        self.until_whole()

    def check(self, late: int, led_with: list[bytes]) -> None:
        self.loop.crash("producer")
        self.until_moved()
        target = self.leader(INTO)
        assert target is not None
        replica = self.replica(target, INTO)
        assert replica is not None
        values = _values(replica, 0)
        acknowledged = self.acknowledged[late:]
        if not acknowledged:
            raise Violation("nothing is acknowledged any more")
        left = set(values).union(_values(self.source(), 0))
        lost = [value for value in (*led_with, *acknowledged) if value not in left]
        if lost:
            raise Violation(f"in the log of the leader, or acknowledged by it, and lost: {lost}")
        places = [values.index(value) for value in acknowledged if value in values]
        if places != sorted(places):
            raise Violation("out of order")


def _values(partition: Partition, start: int) -> list[bytes]:
    data = bytes_below(partition, FAR, start)
    return [record.value or b"" for record in read_all(memoryview(data))]


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = SourceLostStory(loop)
        with story.watched():
            story.begin()
            for _ in range(story.rng.randint(1, 2)):
                story.let_pass(story.rng.uniform(0, 1))
                story.lose_end()
                story.until_whole()
            late, led_with = len(story.acknowledged), story.led_with
            story.let_pass(story.rng.uniform(0.2, 1))
            for _ in range(story.rng.randint(0, 2)):
                story.clean_fault()
            story.let_pass(1)
            story.check(late, led_with)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_source_that_lost_its_end_moves_what_it_has_and_gets(seed: int) -> None:
    run_story(seed)


def writes_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may lie on both sides of it."""
    monkeypatch.setattr(retirement, "_fill", lambda *given: None)


def goes_by_the_latest_place_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the target has of a leader that is gone, what lies before it in the log counts as moved."""
    monkeypatch.setattr(RelayPosition, "places", lambda word: (word.place,))
    honest = RelaySender.places

    async def latest(route: RelaySender) -> tuple[RelayPlace, ...]:
        return (await honest(route))[:1]

    monkeypatch.setattr(RelaySender, "places", latest)


PLANTED = [writes_below_the_limit, goes_by_the_latest_place_alone]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(12))
