"""Who may change the files of a log beside whom, who waits for whom, and for how long it is held."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.jobs import Jobs
from penstock.core.lease import Hold, Lease, Work
from penstock.testing.sim_loop import SimLoop

SYNCS = {Work.SYNC, Work.CHECKPOINT}
# As the head of the module has it.
NOT_BESIDE = {
    Work.SYNC: {*SYNCS, Work.EPOCHS, Work.CUT},
    Work.CHECKPOINT: {*SYNCS, Work.EPOCHS, Work.CUT},
    Work.EPOCHS: {*SYNCS, Work.EPOCHS, Work.CUT},
    Work.DELETE: {Work.CUT},
    Work.CLEAN: {Work.CHECKPOINT, Work.CLEAN, Work.CUT},
    Work.CUT: set(Work),
}


def taken(lease: Lease, work: Work) -> Hold:
    hold = lease.take(work)
    assert hold is not None
    return hold


def run(story: Callable[[Lease], Awaitable[None]]) -> None:
    with SimLoop(1) as loop:
        loop.run_until_complete(loop.spawn("broker", story(Lease())))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", Work)
@pytest.mark.parametrize("second", Work)
def test_who_begins_beside_whom(first: Work, second: Work) -> None:
    lease = Lease()
    hold = taken(lease, first)
    beside = lease.take(second)
    assert (beside is None) == (first in NOT_BESIDE[second])
    if beside is not None:
        beside.release()
    hold.release()
    assert lease.take(second) is not None


def test_what_is_under_way_can_be_asked() -> None:
    lease = Lease()
    assert (lease.is_syncing, lease.is_cutting) == (False, False)
    with taken(lease, Work.SYNC), taken(lease, Work.CLEAN):
        assert (lease.is_syncing, lease.is_cutting) == (True, False)
        assert lease.is_held(Work.CLEAN)
    with taken(lease, Work.CUT):
        assert (lease.is_syncing, lease.is_cutting) == (False, True)
    assert not lease.is_held(Work.CLEAN | Work.CUT)


def test_a_sync_that_turns_out_to_be_a_checkpoint_keeps_compaction_away() -> None:
    lease = Lease()
    hold = taken(lease, Work.SYNC)
    hold.work = Work.CHECKPOINT
    assert lease.take(Work.CLEAN) is None
    assert lease.is_syncing


def test_whoever_waits_gets_it_once_all_who_are_in_its_way_are_done() -> None:
    async def story(lease: Lease) -> None:
        first, second = taken(lease, Work.SYNC), taken(lease, Work.DELETE)
        cut = asyncio.ensure_future(lease.get(Work.CUT))
        await asyncio.sleep(1)
        first.release()
        await asyncio.sleep(1)
        assert not cut.done()
        second.release()
        hold = await cut
        assert hold is not None
        assert lease.is_cutting
        assert lease.take(Work.SYNC) is None

    run(story)


def test_two_who_wait_get_it_one_after_the_other() -> None:
    async def story(lease: Lease) -> None:
        seen: list[int] = []

        async def cut(number: int) -> None:
            hold = await lease.get(Work.CUT)
            assert hold is not None
            with hold:
                seen.append(number)
                await asyncio.sleep(1)
                seen.append(number)

        hold = taken(lease, Work.SYNC)
        both = asyncio.gather(cut(1), cut(2))
        await asyncio.sleep(1)
        hold.release()
        await both
        assert seen in ([1, 1, 2, 2], [2, 2, 1, 1])

    run(story)


def test_one_who_is_cancelled_while_it_waits_has_taken_nothing() -> None:
    async def story(lease: Lease) -> None:
        hold = taken(lease, Work.SYNC)
        cut = asyncio.ensure_future(lease.get(Work.CUT))
        await asyncio.sleep(1)
        hold.release()
        cut.cancel()
        await asyncio.wait([cut])
        assert cut.cancelled()
        assert not lease.is_cutting
        assert lease.take(Work.CUT) is not None

    run(story)


def test_once_it_has_ended_nobody_gets_it_and_the_end_is_when_the_last_one_is_done() -> None:
    async def story(lease: Lease) -> None:
        hold = taken(lease, Work.SYNC)
        waits = asyncio.ensure_future(lease.get(Work.CUT))
        await asyncio.sleep(1)
        lease.end()
        assert await waits is None
        assert await lease.get(Work.DELETE) is None
        assert lease.take(Work.SYNC) is None
        assert lease.is_cutting
        free = asyncio.ensure_future(lease.free())
        await asyncio.sleep(1)
        assert not free.done()
        hold.release()
        await free

    run(story)


def test_it_is_held_as_long_as_the_thread_works_whatever_becomes_of_who_waits_for_it() -> None:
    async def story(lease: Lease) -> None:
        jobs, done = Jobs(asyncio.get_running_loop(), None), []

        async def cut() -> None:
            with taken(lease, Work.CUT) as hold:
                await jobs.run(lambda: done.append("cut"), hold=hold)

        task = asyncio.ensure_future(cut())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert (done, lease.is_cutting) == ([], True)
        sync = await lease.get(Work.SYNC)
        assert (done, lease.is_cutting) == (["cut"], False)
        assert sync is not None

    run(story)


def test_it_is_held_beyond_the_thread_for_what_is_done_with_its_result() -> None:
    async def story(lease: Lease) -> None:
        jobs = Jobs(asyncio.get_running_loop(), None)
        with taken(lease, Work.CLEAN) as hold:
            await jobs.run(lambda: None, hold=hold)
            await asyncio.sleep(1)
            assert lease.take(Work.CUT) is None
        assert lease.take(Work.CUT) is not None

    run(story)
