"""Jobs in steps: the loop goes on between two file operations of a job, and the seed says when."""

import asyncio
import threading
from pathlib import Path

from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop

PATH = Path("/file")


def told(seed: int, step_chance: float) -> list[int]:
    """How many bytes the file had each time that the loop looked, while a job wrote ten."""
    sizes: list[int] = []
    with SimLoop(seed) as loop:
        loop.executor.step_chance = step_chance
        files = MemFiles()
        file = files.open(PATH, create=True)

        def job() -> int:
            for number in range(10):
                file.pwrite(b"x", number)
            return file.size()

        async def story() -> None:
            writing = loop.run_in_executor(None, job)
            while not writing.done():
                sizes.append(len(files.read(PATH)))
                await asyncio.sleep(0.0001)
            assert await writing == 10

        loop.run_until_complete(loop.spawn("process", story()))
    return sizes


def test_a_job_in_steps_is_seen_half_done_and_repeats_exactly() -> None:
    assert any(0 < size < 10 for size in told(1, 0.5))
    assert told(1, 0.5) == told(1, 0.5)


def test_without_steps_a_job_is_one_instant() -> None:
    assert set(told(1, 0.0)) <= {0, 10}


def test_an_error_of_a_job_in_steps_reaches_who_waits() -> None:
    def job() -> None:
        MemFiles().read(PATH)

    with SimLoop(1) as loop:
        loop.executor.step_chance = 0.5

        async def story() -> str:
            try:
                await loop.run_in_executor(None, job)
            except FileNotFoundError:
                return "gone"
            return "read"

        assert loop.run_until_complete(loop.spawn("process", story())) == "gone"


def test_the_thread_of_a_process_that_died_in_the_midst_ends_with_the_loop() -> None:
    before = threading.active_count()
    with SimLoop(1) as loop:
        loop.executor.step_chance = 1.0
        files = MemFiles()

        def job() -> None:
            while True:
                files.exists(PATH)

        async def story() -> None:
            await loop.run_in_executor(None, job)

        loop.spawn("process", story())
        loop.run_for(0.1)
        loop.crash("process")
        loop.run_for(0.1)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
