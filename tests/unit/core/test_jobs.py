"""Threads go on when nobody waits for them any more: somebody does, in the end, and hears what went wrong."""

import asyncio
import logging

import pytest

from penstock.core.jobs import Jobs
from penstock.testing.sim_loop import SimLoop


def test_who_is_cancelled_leaves_the_job_to_its_owner() -> None:
    with SimLoop(1) as loop:
        jobs = Jobs(loop, None)
        done: list[str] = []

        async def story() -> list[str]:
            waiting = loop.create_task(_await(jobs.run(lambda: done.append("renamed"))))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            await jobs.idle()
            return list(done)

        assert loop.run_until_complete(story()) == ["renamed"]


async def _await(future: "asyncio.Future[None]") -> None:
    await future


def test_what_a_job_returns_or_raises_is_for_who_waits() -> None:
    with SimLoop(1) as loop:
        jobs = Jobs(loop, None)

        async def story() -> int:
            with pytest.raises(ZeroDivisionError):
                await jobs.run(lambda: 1 // 0)
            return await jobs.run(lambda: 7)

        assert loop.run_until_complete(story()) == 7


def test_an_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError("no such disk")

    with SimLoop(1) as loop, caplog.at_level(logging.ERROR):
        jobs = Jobs(loop, None)

        async def story() -> None:
            jobs.start("the trash stays", fails)
            await jobs.idle()

        loop.run_until_complete(story())
    assert "the trash stays: no such disk" in caplog.text
