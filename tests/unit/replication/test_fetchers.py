"""Whoever would have a partition back waits until nothing works on its log, also the second time that it asks."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.replication.test_begun_anew import PARTED, Nobody, follower_of
from tests.unit.replication.test_cut_short import parted
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.waiting import until

from penstock.core.jobs import Jobs
from penstock.replication.fetcher import Fetcher
from penstock.replication.fetchers import Fetchers


class Slow:
    """Takes an answer over until it is told that it is done."""

    def __init__(self, slow: object = None) -> None:
        self.slow = slow  # the only partition that takes so long
        self.begun, self.done = asyncio.Event(), asyncio.Event()
        self.taken = False
        self.others: list[object] = []  # which were taken over at once

    async def take(self, partition: object, *_: Any) -> bool:
        if self.slow is not None and partition is not self.slow:
            self.others.append(partition)
            return True
        self.begun.set()
        await self.done.wait()
        self.taken = True
        return True


async def answered(fetcher: Fetcher) -> list[Any]:
    """In place of `Fetcher._ask`: each partition has an answer, and the slow one always."""
    answer, follower = SimpleNamespace(records=b"", error_code=0), cast("Slow", fetcher._context.follower)
    return [
        (partition, followed, answer)
        for partition, followed in fetcher.partitions.items()
        if partition not in follower.others
    ]


@pytest.mark.parametrize("is_done", [False, True])  # when the stop comes to the fetchers
@pytest.mark.parametrize("others", [[], ["before"], ["behind"]])
async def test_a_stop_waits_for_an_answer_that_somebody_waited_for_who_was_cancelled(
    others: list[str], is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata names another leader in the midst of a cut; a stop then cancels who lets go of the old one."""
    monkeypatch.setattr(Fetcher, "_ask", answered)
    partition, other = cast("Any", object()), cast("Any", object())
    follower = Slow(partition)
    loop, nobody = asyncio.get_running_loop(), cast("Any", None)
    fetchers = Fetchers(loop, 2, nobody, nobody, cast("Any", follower), nobody)
    if "before" in others:
        fetchers.follow(other, leader=1, epoch=0)
    fetchers.follow(partition, leader=1, epoch=0)
    if "behind" in others:
        fetchers.follow(other, leader=1, epoch=0)
    await follower.begun.wait()
    busy = fetchers._by_leader[1]._busy
    hosting = loop.create_task(fetchers.release(partition))
    await asyncio.sleep(0)
    hosting.cancel()
    await asyncio.wait([hosting])
    if is_done:
        follower.done.set()
        await until(lambda: follower.taken)
    stop = loop.create_task(fetchers.close())
    await until(lambda: stop.done() or busy._waiters)
    assert is_done or not stop.done()
    follower.done.set()
    await stop
    assert follower.taken


def test_a_log_whose_cut_nobody_waited_for_vouches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are shorter than it knows: a checkpoint would name records that are gone."""

    async def story(bench: Bench) -> None:
        partition = await parted(bench)
        cutting = asyncio.Event()
        honest = Jobs.run

        def begun(jobs: Jobs, *job: Any, **options: Any) -> Any:
            cutting.set()
            return honest(jobs, *job, **options)

        monkeypatch.setattr(Jobs, "run", begun)
        taking = bench.loop.create_task(follower_of(bench).take(partition, 3, PARTED, Nobody()))
        await cutting.wait()
        taking.cancel()
        await asyncio.wait([taking])
        assert taking.cancelled()
        assert partition.log.failed

    run(story)
