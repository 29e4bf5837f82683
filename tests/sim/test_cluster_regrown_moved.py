"""A number is retired again and again: its target holds what was written behind each limit, once and in that order."""

import pytest
from tests.sim.cluster_clients import read_partition
from tests.sim.cluster_retiring import INTO, RETIRED
from tests.sim.regrown import RegrownStory

from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_loop import SimLoop

ROUNDS = 3
SEEDS = range(880_000, 880_004)


class MovedStory(RegrownStory):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.moved: list[bytes] = []  # what was acknowledged by a partition that was retired

    def write(self, count: int) -> None:
        first, states = self.written, list(self.states())
        is_retired = len(states) > RETIRED and states[RETIRED].retirement is not None
        super().write(count)
        if is_retired:
            self.moved += [b"record-%d" % number for number in range(first, self.written)]

    def _wipe(self, victim: SimBroker) -> None:
        """Not the only copy: what it had and the target did not is lost then."""
        if self.replicas > 1:
            super()._wipe(victim)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_target_has_what_was_moved_in_several_retirements_of_one_number(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = MovedStory(loop)
        story.begin()
        story.write(story.rng.randint(0, 6))
        for _ in range(ROUNDS):
            story.shrink_and_grow()
            story.write(story.rng.randint(0, 6))
            story.read(story.highest + 1)
            story.archive()
        story.let_pass(5)
        assert story.moved
        assert story.run(read_partition(story.client("checker"), INTO)) == story.moved
