"""The target of a relay loses its end, and what it lost is deleted at the source: that is lost, and nothing else.

Its settings allow that: an unclean election, or a power cut of all replicas while acknowledgements do not wait for the
disk. What is acknowledged afterwards arrives, and the retired partition can still come to its end.
"""

import asyncio
import os

import pytest
from tests.sim.cluster_clients import ClusterClient, Violation, fetch_once
from tests.sim.cluster_planted import Plant, goes_wrong
from tests.sim.cluster_retiring import INTO
from tests.sim.cluster_story import Story
from tests.sim.messages import NETWORK_TROUBLE
from tests.sim.retiring_planted import waits_for_what_is_gone
from tests.sim.test_relay_commits import SETTINGS, CommitStory

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
        leader.kill()
        for machine in others:
            machine.start()
        self.loop.run_until(lambda: self.leader(INTO) in others)
        self.let_pass(self.rng.uniform(0, 2))
        leader.start()

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


@pytest.mark.parametrize("plant", [waits_for_what_is_gone], ids=lambda plant: plant.__name__)
def test_the_checkers_find_a_relay_that_waits_for_ever(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(goes_wrong(run_story, seed) for seed in range(5))
