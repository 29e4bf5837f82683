"""The relay is stopped at every step of its way: whoever is killed there, nothing is lost and nothing comes twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.sim.cluster_clients import Violation
from tests.sim.cluster_retiring import INTO, RETIRED, RetiringStory
from tests.sim.retiring_planted import takes_everything

from penstock.records.relay import RelayPlace
from penstock.replication.partition import Partition
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.sender import RelaySender
from penstock.testing.sim_broker import SESSION_SECONDS
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
        patch.setattr(RelaySender, "places", self._around(RelaySender.places, "asked"))
        patch.setattr(RelaySender, "deliver", self._around(RelaySender.deliver, "sent"))
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


def run_scene(trap: Trap, seed: int, how: str, victims: tuple[int, ...]) -> None:
    with SimLoop(seed) as loop:
        story = RetiringStory(loop, synced=False)
        story.begin()
        story.let_pass(1.0)
        trap.armed = True
        story.begin_to_retire()
        loop.run_until(lambda: trap.sprung)
        leaders = list(dict.fromkeys(story.leader(index) for index in victims))
        for machine in leaders:
            assert machine is not None
            if how == "killed":
                story.turn_off(machine, power=False)
            else:
                machine.pause()
        # Long enough for others to lead, and to go on with it.
        story.let_pass(3 * SESSION_SECONDS)
        story.heal()
        story.check_progress()
        story.check_data()
        assert story.moved_count() > 0


@pytest.mark.parametrize(
    ("how", "victims"),
    [
        ("killed", (RETIRED,)),
        ("killed", (INTO,)),
        ("killed", (RETIRED, INTO)),
        ("paused", (RETIRED,)),
        ("paused", (INTO,)),
    ],
    ids=["source killed", "target killed", "both killed", "source paused", "target paused"],
)
@pytest.mark.parametrize("step", STEPS)
def test_whatever_happens_at_a_step_nothing_is_lost_or_comes_twice(
    step: str, how: str, victims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(step, 1 if "asked" in step else 3, monkeypatch)
    run_scene(trap, len(step) + 100 * len(victims), how, victims)


def test_the_target_drops_what_it_has_also_from_a_source_that_never_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(_: RelaySender) -> tuple[RelayPlace, ...]:
        return ()

    trap = Trap("after sent", 3, monkeypatch)
    monkeypatch.setattr(RelaySender, "places", nothing)
    run_scene(trap, 1, "killed", (RETIRED,))


def test_the_checkers_find_a_target_that_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced while it slept sends once more what its successor has moved."""
    takes_everything(monkeypatch)
    monkeypatch.setattr(RelayInbox, "check_sender", lambda *given: None)  # its registration is over, too
    trap = Trap("before sent", 3, monkeypatch)
    with pytest.raises(Violation, match=r"twice|reordered"):
        run_scene(trap, 1, "paused", (RETIRED,))
