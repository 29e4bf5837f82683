"""The relay is stopped at every step of its way: whoever is killed there, nothing is lost and nothing comes twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.sim.cluster_retiring import INTO, RETIRED, RetiringStory

from penstock.replication.partition import Partition
from penstock.services.relay.routes import Route
from penstock.testing.sim_loop import SimLoop

# Long enough for the kill to come in between.
_PAUSE_SECONDS = 0.001
STEPS = ("before asked", "after asked", "before sent", "stored", "after sent")


class Trap:
    """Springs when the relay takes a step for the n-th time, and holds it there for a moment."""

    def __init__(self, step: str, times: int, patch: pytest.MonkeyPatch) -> None:
        self._step = step
        self._left = times
        self.armed = False
        self.sprung = False
        patch.setattr(Route, "place", self._around(Route.place, "asked"))
        patch.setattr(Route, "deliver", self._around(Route.deliver, "sent"))
        honest = Partition.append_relayed

        def append_relayed(partition: Partition, *given: Any) -> tuple[int, int]:
            offsets = honest(partition, *given)
            self._pass("stored")
            return offsets

        patch.setattr(Partition, "append_relayed", append_relayed)

    def _around(self, honest: Callable[..., Awaitable[Any]], what: str) -> Callable[..., Awaitable[Any]]:
        async def step(*given: Any) -> Any:
            if self._pass(f"before {what}"):
                await asyncio.sleep(_PAUSE_SECONDS)
            result = await honest(*given)
            if self._pass(f"after {what}"):
                await asyncio.sleep(_PAUSE_SECONDS)
            return result

        return step

    def _pass(self, step: str) -> bool:
        if not self.armed or self.sprung or step != self._step:
            return False
        self._left -= 1
        self.sprung = self._left <= 0
        return self.sprung


@pytest.mark.parametrize("victims", [(RETIRED,), (INTO,), (RETIRED, INTO)], ids=["source", "target", "both"])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_is_killed_at_a_step_nothing_is_lost_or_comes_twice(
    step: str, victims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(step, 1 if "asked" in step else 3, monkeypatch)
    with SimLoop(len(step) + 100 * len(victims)) as loop:
        story = RetiringStory(loop, synced=False)
        story.begin()
        story.let_pass(1.0)
        trap.armed = True
        story.begin_to_retire()
        loop.run_until(lambda: trap.sprung)
        for machine in {story.leader(index): None for index in victims}:
            assert machine is not None
            story.turn_off(machine, power=False)
        story.let_pass(2.0)
        story.heal()
        story.check_progress()
        story.check_data()
        assert story.moved_count() > 0
