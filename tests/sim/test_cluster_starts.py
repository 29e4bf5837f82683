"""What is left of a start that failed, and of a read that failed: nothing, whatever word of the store was lost."""

from contextlib import ExitStack
from unittest.mock import patch

import pytest
from tests.sim.cluster_hostile import HostileStory
from tests.sim.test_cluster_scenes import Scene

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import DiskFailedError
from penstock.replication.fetcher import Fetcher, FetcherContext
from penstock.replication.fetchers import Fetchers
from penstock.services.hosting import hosting
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.testing.sim_loop import SimLoop

CALLS = 7  # of a start: four that load the metadata, three that register


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("step", range(CALLS))
def test_a_start_that_fails_leaves_nothing_that_writes(step: int, fault: Fault) -> None:
    with SimLoop(step) as loop, ExitStack() as stack:
        scene = Scene(loop, synced=False)
        scene.begin()
        victim = scene.followers()[0]
        victim.kill()
        contexts: list[FetcherContext] = []
        honest = Fetcher.run

        async def run(fetcher: Fetcher) -> None:
            contexts.append(fetcher._context)
            try:
                await honest(fetcher)
            finally:
                contexts.remove(fetcher._context)

        stack.enter_context(patch.object(Fetcher, "run", run))
        victim.store_fault = (step, fault)
        victim.start()
        scene.until_whole()
        assert victim.broker is not None
        ours = [context for context in contexts if context.node == victim.broker.services.node.id]
        assert ours
        assert all(context is victim.broker.cluster.fetchers.context for context in ours)


def test_nothing_fetches_before_the_broker_is_registered() -> None:
    with SimLoop(3) as loop:
        scene = Scene(loop, synced=False)
        scene.begin()
        victim = scene.followers()[0]
        victim.kill()
        epochs: list[int] = []
        honest = Fetchers.follow

        def follow(fetchers: Fetchers, *place: object) -> None:
            epochs.append(fetchers.context.identity.broker_epoch())
            honest(fetchers, *place)  # type: ignore[arg-type]

        with patch.object(Fetchers, "follow", follow):
            victim.start()
            scene.until_whole()
        assert epochs
        assert min(epochs) > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_read_error_does_not_end_replication(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = HostileStory(loop)
        story.begin()
        story.let_pass(2)
        for machine in story.machines:
            machine.may_break = False  # none of it is a reason to end
            machine.files.fail_next("read", "*.log", count=2)
        story.let_pass(2)
        story.heal()
        story.check_progress()
        story.check_data()


def test_a_read_that_fails_for_a_high_watermark_keeps_one_replica_offline_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, failures = hosting.end_at, [DiskFailedError("Input/output error")]

    def failing(log: Log, offset: int) -> LogEnd:
        if failures:
            raise failures.pop()
        return honest(log, offset)

    with SimLoop(3) as loop:
        scene = Scene(loop, synced=False)
        scene.begin()
        assert scene.produce(-1) is ErrorCode.NONE
        follower = scene.followers()[0]
        follower.stop()
        monkeypatch.setattr(hosting, "end_at", failing)
        follower.start()
        scene.let_pass(3)
        scene.until_whole()
        assert not failures
