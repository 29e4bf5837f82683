"""The target of a relay is retired itself: what is written to the third partition goes by the second to the first.

Clean faults only: nothing is lost, nothing comes twice, each producer keeps its order; and when nobody writes any more,
all logs stand still.
"""

import asyncio
import os
from random import Random

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import batch_of, idempotent, numbered
from tests.sim.retiring_planted import goes_by_what_it_remembers
from tests.sim.test_relay_commits import FAR, CommitStory

from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.replication.retirement import Retirement, is_drained
from penstock.services.maintenance import upkeep
from penstock.services.relay import positions
from penstock.testing.sim_loop import SimLoop

SEEDS = max(int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 15, 1)
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
SETTINGS = {
    "penstock.retire.check.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "penstock.fill.empty.brokers": "false",
    "penstock.heal.grace.ms": "600000",
    "leader.imbalance.check.interval.seconds": "3",
}
FIRST, SECOND, THIRD = (
    0,
    1,
    3,
)  # the last goes into the second while there are two, and the second into the first


class ChainStory(CommitStory):
    def __init__(self, loop: SimLoop) -> None:
        Story.__init__(self, loop, SETTINGS, brokers=3)
        self.replicas = tuple(tuple(self.rng.sample([1, 2, 3], 3)) for _ in range(4))  # type: ignore[assignment]
        self.acknowledged: set[bytes] = set()

    @property
    def configs(self) -> dict[str, str]:
        return {
            "internal.segment.bytes": self.rng.choice(["300", "1000"]),
            "min.insync.replicas": "2",
            "retention.ms": "-1",
            "penstock.ack.after": "synced" if self.is_synced else "auto",
            "penstock.retire.grace.ms": "600000",
        }

    async def _write(self, index: int, rng: Random) -> None:
        sequence = 0
        while True:
            values = numbered(index, sequence, rng.randint(1, 4))
            batch = batch_of(values, idempotent(index, sequence))
            await self.put(f"producer-{index}", index, batch)
            self.acknowledged |= set(values)
            sequence += len(values)
            await asyncio.sleep(rng.choice([0.0, 0.02, 0.1, 0.3]))

    def begin(self) -> None:
        """Retired before anybody writes, so that what is moved goes at once; or while they do."""
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.loop.run_until_complete(self.loop.spawn("admin", self._create()))
        self.let_pass(1)
        is_first = self.rng.random() < 0.6
        if not is_first:
            self._begin_to_write()
            self.let_pass(0.5)
        self.configure({"penstock.retire.to": "2"})
        self.loop.run_until(lambda: self._limit(THIRD) is not None)
        if is_first and self.rng.random() < 0.5:  # readers have nothing left in the second, either
            self.configure({"penstock.retire.to": "1"})
            self.loop.run_until(lambda: self._limit(SECOND) is not None)
        if is_first:
            self._begin_to_write()

    def _begin_to_write(self) -> None:
        for index in (FIRST, SECOND, THIRD):
            name = f"producer-{index}"
            self.spawn(name, self._write(index, self.loop.random(name)))

    def _limit(self, index: int) -> int | None:
        retirement = self._state(index).retirement
        return None if retirement is None else retirement.offset

    def misfortune(self) -> None:
        leader = self.leader(self.rng.choice([FIRST, SECOND, THIRD]))
        if self.rng.random() < 0.5 or leader is None or not leader.running:
            Story.misfortune(self)
        else:
            self.turn_off(leader, power=self.may_lose_power(leader) and self.rng.random() < 0.5)

    def led(self, index: int) -> Partition:
        leader = self.leader(index)
        partition = None if leader is None else self.replica(leader, index)
        assert partition is not None
        return partition

    def check(self) -> None:
        for _ in range(300):
            self.let_pass(0.2)
            if self._is_whole() and self._limit(SECOND) is not None:
                break
        else:
            raise Violation(f"not in sync, or not retired: {list(self.states())}")
        self.let_pass(1.5)
        for index in (FIRST, SECOND, THIRD):
            self.loop.crash(f"producer-{index}")
        for index in (THIRD, SECOND):
            for _ in range(300):
                self.let_pass(0.1)
                if is_drained(self.led(index)):
                    break
            else:
                raise Violation(f"{index} is not moved: {self.led(index).retirement}")
        found = [
            value for index in (THIRD, SECOND, FIRST) for value in self._readable(index, self._limit(index))
        ]
        if lost := self.acknowledged.difference(found):
            raise Violation(f"lost: {lost}")
        if len(set(found)) != len(found):
            raise Violation("something is there twice")
        for number in (FIRST, SECOND, THIRD):
            own = [int(value.split(b"-")[1]) for value in found if value.startswith(b"%d-" % number)]
            if own != sorted(own):
                raise Violation(f"producer {number} was reordered")
        self.let_pass(2)
        ends = [self.led(index).log.end_offset for index in (FIRST, SECOND, THIRD)]
        self.let_pass(4)
        if ends != [self.led(index).log.end_offset for index in (FIRST, SECOND, THIRD)]:
            raise Violation("nobody writes, and logs grow")

    def _readable(self, index: int, limit: int | None) -> list[bytes]:
        data = bytes_below(self.led(index), FAR if limit is None else limit)
        return [record.value or b"" for record in read_all(memoryview(data))]


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = ChainStory(loop)
        story.begin()
        for _ in range(story.rng.randint(0, 2)):
            story.let_pass(story.rng.uniform(0.05, 1))
            story.misfortune()
        story.configure({"penstock.retire.to": "1"})
        for _ in range(story.rng.randint(1, 4)):
            story.let_pass(story.rng.uniform(0.05, 1))
            story.misfortune()
        story.heal()
        story.check()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_records_go_by_way_of_a_retired_partition(seed: int) -> None:
    run_story(seed)


def repeats_positions_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a retired partition, too, each round of retention makes room by writing a word once more."""
    honest = positions.keep_positions

    def keep_positions(topic: object, partition: Partition, *given: object) -> int:
        retirement: Retirement | None = partition.retirement
        partition.retirement = None
        try:
            return honest(topic, partition, *given)  # type: ignore[arg-type]
        finally:
            partition.retirement = retirement

    monkeypatch.setattr(upkeep, "keep_positions", keep_positions)


@pytest.mark.parametrize(
    "plant", [repeats_positions_for_ever, goes_by_what_it_remembers], ids=lambda plant: plant.__name__
)
def test_the_checkers_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(12))
