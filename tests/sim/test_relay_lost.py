"""The target of a relay loses its end, and what it lost is deleted at the source: that is lost, and nothing else.

Its settings allow that: an unclean election, or a power cut of all replicas while acknowledgements do not wait for the
disk. What is acknowledged afterwards arrives, and the retired partition can still come to its end.
"""

import asyncio
import os
from itertools import count

import pytest
from tests.sim.cluster_clients import ClusterClient, Violation, fetch_once, write
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_retiring import INTO, RETIRED, WRITER
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import NETWORK_TROUBLE, batch_of
from tests.sim.retiring_planted import begins_anywhere, waits_for_what_is_gone
from tests.sim.test_relay_commits import FAR, SETTINGS, CommitStory

from penstock.records.reader import read_all
from penstock.services.relay.sender import RelaySender
from penstock.testing.sim_loop import SimLoop

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 30
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
TARGET_REPLICAS, SOURCE_REPLICAS = (1, 2, 3), (4, 5, 6)


class LostEndStory(CommitStory):
    replicas = (TARGET_REPLICAS, SOURCE_REPLICAS)

    def __init__(self, loop: SimLoop) -> None:
        Story.__init__(self, loop, SETTINGS, synced=False, brokers=6)
        self.elects_uncleanly = self.rng.random() < 0.7

    @property
    def configs(self) -> dict[str, str]:
        if not self.elects_uncleanly:
            return super().configs
        return {**super().configs, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}

    def lose_end(self) -> None:
        if self.elects_uncleanly:
            self._elect_one_that_was_away()
        else:
            for number in TARGET_REPLICAS:
                self.machines[number - 1].power_cut()
            for number in TARGET_REPLICAS:
                self.machines[number - 1].start()
        self.let_pass(self.rng.uniform(0, 2))

    def _elect_one_that_was_away(self) -> None:
        """One goes on alone for a while, and dies when the others come back: they lack what it took meanwhile."""
        leader = self.leader(INTO)
        assert leader is not None
        targets = [self.machines[number - 1] for number in TARGET_REPLICAS]
        others = [machine for machine in targets if machine is not leader]
        for machine in others:
            machine.kill()
        self.loop.run_until(lambda: len(self._state(INTO).isr) == 1)
        self.let_pass(self.rng.uniform(0.2, 4))
        self.about_to_lose()
        leader.kill()
        for machine in others:
            machine.start()
        self.loop.run_until(lambda: self.leader(INTO) in others)
        self.let_pass(self.rng.uniform(0, 2))
        leader.start()

    def about_to_lose(self) -> None:
        pass

    def check_rest(self) -> None:
        """What is acknowledged once all is whole again arrives, once and in order."""
        self.check_progress()
        before = dict(self.history.acknowledged)
        self.let_pass(1)
        self.loop.crash("producer")
        self.until_moved()
        values = self.loop.run_until_complete(
            self.loop.spawn("checker", read_skipping(self.client("checker")))
        )
        late = [value for place, value in self.history.acknowledged.items() if place not in before]
        lost = [value for value in late if value not in values]
        if lost or not late:
            raise Violation(f"acknowledged after the fault, and in no log: {lost} of {len(late)}")
        places = [values.index(value) for value in late]
        if places != sorted(places) or len(set(values)) != len(values):
            raise Violation("something is there twice, or out of order")


class QuietStory(LostEndStory):
    """The source still has what its target loses, because readers have something left; and nobody writes any more."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.elects_uncleanly = True

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.loop.run_until_complete(self.loop.spawn("admin", self._create()))
        self.let_pass(1)
        client = self.client("producer")
        self.spawn("producer", write(self.history, client, WRITER, self.loop.random("producer")))
        self.let_pass(1)
        self.begin_to_retire()
        self.loop.run_until(self.is_retired)

    def about_to_lose(self) -> None:
        self.loop.crash("producer")
        self.until_moved()

    def check_all(self) -> None:
        for _ in range(300):
            self.let_pass(0.1)
            if self._is_whole():
                break
        self.let_pass(3)
        reading = read_skipping(self.client("checker"))
        values = self.loop.run_until_complete(self.loop.spawn("checker", reading))
        hidden = {value for (_, offset), value in self.history.acknowledged.items() if offset >= self.limit}
        if not hidden or hidden - set(values):
            raise Violation(f"the source has it, and the target has not: {hidden - set(values)}")
        if len(set(values)) != len(values):
            raise Violation("something is there twice")


class BusyStory(QuietStory):
    """The same while there is always more to move: who is elected has not even heard of the relay."""

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.loop.run_until_complete(self.loop.spawn("admin", self._create()))
        for number in range(3):  # some of it is always under way
            self.spawn("producer", self._write(number))
        self.let_pass(0.5)

    async def _write(self, writer: int) -> None:
        for number in count():
            await self.put(f"producer-{writer}", RETIRED, batch_of([b"%d-%d" % (writer, number)]))
            await asyncio.sleep(self.rng.choice([0.01, 0.1]))

    def lose_end(self) -> None:
        """One is left alone, takes what is moved, and is cut off from all but the source; the others are back."""
        leader = self.leader(INTO)
        assert leader is not None
        targets = [self.machines[number - 1] for number in TARGET_REPLICAS]
        others = [machine for machine in targets if machine is not leader]
        for machine in others:
            machine.kill()
        self.loop.run_until(lambda: len(self._state(INTO).isr) == 1)
        self.begin_to_retire()
        self.loop.run_until(self.is_retired)
        self.let_pass(self.rng.uniform(0.2, 1))
        for machine in others:
            self.loop.network.stall(leader.name, machine.name)
        leader.cut_off()
        for machine in others:
            machine.start()
        self.loop.run_until(lambda: self.leader(INTO) in others)
        self.let_pass(self.rng.uniform(0, 1))
        self.loop.crash("producer")
        self.loop.network.heal_all()
        leader.reach_store()

    def check_all(self) -> None:
        self.until_moved()
        self.let_pass(3)
        source = read_all(memoryview(bytes_below(self.source(), FAR, self.limit)))
        reading = read_skipping(self.client("checker"))
        values = self.loop.run_until_complete(self.loop.spawn("checker", reading))
        lost = [record.value for record in source if record.value not in values]
        if lost:
            raise Violation(f"the source has it, and the target has not: {lost}")
        if len(set(values)) != len(values):
            raise Violation("something is there twice")


async def read_skipping(client: ClusterClient) -> list[bytes]:
    """All of the target; a control record, which says what is lost, takes an offset and is shown to nobody."""
    values: list[bytes] = []
    place = high_watermark = 0
    while place < high_watermark or not place:
        try:
            records, high_watermark = await fetch_once(client, INTO, place, 0)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        values += [record.value or b"" for record in records]
        place = records[-1].offset + 1 if records else place + (place < high_watermark)
    return values


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = LostEndStory(loop)
        story.begin()
        story.let_pass(story.rng.uniform(0.5, 2))
        for _ in range(story.rng.randint(1, 2)):
            story.lose_end()
        story.check_rest()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_target_that_lost_its_end_takes_what_comes_next(seed: int) -> None:
    run_story(seed)


def run_busy_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = BusyStory(loop)
        story.begin()
        story.lose_end()
        story.check_all()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(SEEDS // 4, 1)))
def test_a_target_that_never_heard_of_the_relay_gets_it_from_the_beginning(seed: int) -> None:
    run_busy_story(seed)


def test_the_checkers_find_a_target_that_begins_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    begins_anywhere(monkeypatch)
    assert any(goes_wrong(run_busy_story, seed) for seed in range(4))


def run_quiet_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = QuietStory(loop)
        story.begin()
        story.let_pass(story.rng.uniform(0, 1))
        story.lose_end()
        story.check_all()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(SEEDS // 2, 1)))
def test_a_target_that_loses_its_end_while_nobody_writes_gets_it_again(seed: int) -> None:
    run_quiet_story(seed)


def test_the_checkers_find_a_relay_that_looks_only_when_there_is_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RelaySender, "epoch", 0)
    assert any(goes_wrong(run_quiet_story, seed) for seed in range(3))


@pytest.mark.parametrize("plant", [waits_for_what_is_gone], ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_relay_that_waits_for_ever(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(5))
