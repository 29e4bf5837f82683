"""The simulated loop keeps asyncio's promises, and breaks everything else by the seed."""

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_failures import Deadlock, SimulationError
from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_steps import may_stop_here


def test_virtual_time_passes_without_waiting() -> None:
    async def scenario() -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1000)
        except TimeoutError:
            return "timed out"
        return "woken"

    with SimLoop(1) as loop:
        assert loop.run_until_complete(scenario()) == "timed out"
        assert loop.time() == pytest.approx(1000, abs=0.001)


def test_the_tools_of_asyncio_work() -> None:
    async def scenario() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        got: list[object] = []

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)

        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(produce())
            got += [await queue.get() for _ in range(3)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        with pytest.raises(ExceptionGroup):
            await _fail_in_a_group()
        got.append(await asyncio.to_thread(lambda: "thread"))
        got.extend(await asyncio.gather(asyncio.sleep(2, "a"), asyncio.sleep(1, "b")))
        return got

    with SimLoop(3) as loop:
        assert loop.run_until_complete(scenario()) == [0, 1, 2, "thread", "a", "b"]


async def _fail_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(1000))
        group.create_task(_raise(ValueError("no")))


async def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("seed", range(20))
def test_call_soon_is_first_in_first_out_within_a_process(seed: int) -> None:
    order: list[tuple[str, int]] = []
    with SimLoop(seed) as loop:
        for number in range(10):
            for name in ("a", "b"):
                with loop.on(name):
                    loop.call_soon(order.append, (name, number))
        loop.run_for(1)
    assert [n for name, n in order if name == "a"] == list(range(10))
    assert [n for name, n in order if name == "b"] == list(range(10))


def test_the_seed_decides_between_processes_and_between_timers_due_together() -> None:
    between_processes, between_timers = set(), set()
    for seed in range(20):
        order: list[str] = []
        with SimLoop(seed) as loop:
            for name in ("a", "b", "c"):
                with loop.on(name):
                    loop.call_soon(order.append, name)
            loop.run_for(1)
            between_processes.add("".join(order))
            order.clear()
            when = loop.time() + 1
            for name in ("a", "b", "c"):
                loop.call_at(when, order.append, name)
            loop.run_for(2)
            between_timers.add("".join(order))
    assert len(between_processes) > 2
    assert len(between_timers) > 2


def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    with SimLoop(1) as loop:
        fired: list[int] = []
        for number in range(1000):
            loop.call_later(500 + number, fired.append, number).cancel()
        loop.run_for(1)
        assert fired == []
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.create_future())
        assert loop.time() < 2


def test_a_task_group_ends_its_tasks_in_one_order() -> None:
    """It keeps them in a set: by their addresses, that order would differ from run to run."""

    async def sleeper(number: int, ended: list[int]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(number)

    async def group(ended: list[int]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(sleeper(number, ended))

    def story() -> list[int]:
        ended: list[int] = []
        loop = SimLoop(1)
        with closing(loop):
            task = loop.create_task(group(ended))
            loop.run_for(1)
            task.cancel()
            loop.run_for(1)
        return ended

    kept = [bytearray(number) for number in range(1000)]  # so that addresses differ
    assert story() == story() == list(range(50))
    assert kept


def test_waiting_for_what_cannot_come_is_a_deadlock_that_names_the_waiter() -> None:
    async def wait_in_vain() -> None:
        await asyncio.Event().wait()

    with SimLoop(42) as loop, pytest.raises(Deadlock, match=r"(?s)seed 42.*wait_in_vain"):
        loop.run_until_complete(wait_in_vain())


def test_an_endless_loop_hits_a_bound() -> None:
    async def repeat(seconds: float) -> None:
        for _ in itertools.count():
            await asyncio.sleep(seconds)

    with SimLoop(1, steps_max=1000) as loop, pytest.raises(SimulationError, match="1000 steps"):
        loop.run_until_complete(repeat(0))
    with SimLoop(1, seconds_max=600) as loop, pytest.raises(SimulationError, match="virtual seconds"):
        loop.run_until_complete(repeat(10))


def test_an_exception_in_a_callback_fails_the_run() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with SimLoop(5) as loop:
        loop.call_soon(fail)
        with pytest.raises(SimulationError, match="seed 5") as caught:
            loop.run_for(1)
        assert isinstance(caught.value.__cause__, ValueError)


def test_a_task_that_failed_unnoticed_fails_the_run() -> None:
    def run() -> None:
        with SimLoop(5) as loop:
            loop.spawn("a", _raise(ValueError("broken")))
            loop.run_for(1)

    with pytest.raises(SimulationError, match="seed 5"):
        run()


def test_a_crashed_process_never_runs_again() -> None:
    ran: list[str] = []

    async def worker(loop: SimLoop, name: str) -> None:
        loop.call_later(2, ran.append, f"{name} timer")
        loop.run_in_executor(None, ran.append, f"{name} early")
        try:
            await asyncio.sleep(2)
            ran.append(f"{name} task")
        finally:
            ran.append(f"{name} finally")

    with SimLoop(1) as loop:
        loop.spawn("a", worker(loop, "a"))
        loop.spawn("b", worker(loop, "b"))
        loop.run_for(1)
        ran.clear()
        with loop.on("a"):
            loop.call_soon(ran.append, "a soon")
            loop.run_in_executor(None, ran.append, "a job")
        loop.crash("a")
        loop.run_for(10)
        assert sorted(ran) == ["b finally", "b task", "b timer"]
        loop.spawn("a", worker(loop, "a"))
        loop.run_for(10)
        assert "a task" in ran


def test_time_does_not_wait_for_the_timers_of_the_dead() -> None:
    with SimLoop(1) as loop:
        with loop.on("a"):
            loop.call_later(1000, print)
        loop.crash("a")
        with pytest.raises(Deadlock):
            loop.run_until_complete(loop.create_future())
        assert loop.time() < 1


def test_what_is_left_of_a_crashed_process_is_buried_in_silence() -> None:
    async def stubborn() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(100))
                await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    with SimLoop(1) as loop:
        task = loop.spawn("a", stubborn())
        loop.run_for(1)
        loop.crash("a")
        loop.run_for(1)
        assert not task.done()
        del task


def test_a_job_runs_at_the_start_or_at_the_end_of_its_time() -> None:
    """A sync that began before a write may or may not cover it."""
    seen = set()
    for seed in range(30):
        written: list[str] = ["before"]
        with SimLoop(seed) as loop:
            job = loop.run_in_executor(None, lambda written=written: list(written))
            loop.call_soon(loop.call_soon, written.append, "during")
            seen.add(tuple(loop.run_until_complete(job)))
    assert seen == {("before",), ("before", "during")}


@pytest.mark.parametrize("seed", range(10))
def test_a_pool_of_one_keeps_the_order_of_its_jobs(seed: int) -> None:
    done: list[int] = []
    with SimLoop(seed) as loop, ThreadPoolExecutor(max_workers=1) as pool:
        jobs = [loop.run_in_executor(pool, done.append, number) for number in range(10)]
        loop.run_until_complete(asyncio.wait(jobs))
    assert done == list(range(10))


def test_a_slow_disk_takes_longer() -> None:
    def duration(factor: float) -> float:
        with SimLoop(9) as loop:
            loop.slow_down("a", factor)
            with loop.on("a"):
                job = loop.run_in_executor(None, int)
            loop.run_until_complete(job)
            return loop.time()

    assert duration(1000) > 100 * duration(1)


@pytest.mark.parametrize("step_chance", [0.0, 1.0])
def test_a_disk_that_is_quick_again_soon_ends_what_it_was_at(step_chance: float) -> None:
    with SimLoop(9) as loop:
        loop.executor.step_chance = step_chance
        loop.slow_down("a", 1_000_000)
        with loop.on("a"):
            job = loop.run_in_executor(None, may_stop_here)
        loop.run_for(1)
        assert not job.done()
        loop.quicken("a")
        loop.run_for(1)
        assert job.done()


def test_what_a_job_had_goes_with_it() -> None:
    class Held:
        def use(self) -> None:
            pass

    gc.disable()
    try:
        with SimLoop(1) as loop:
            held = Held()
            known = weakref.ref(held)
            job = loop.run_in_executor(None, held.use)
            del held
            loop.run_until_complete(job)
            loop.run_for(1)
            assert known() is None
    finally:
        gc.enable()


def test_a_job_sees_no_loop_and_may_not_schedule_but_threadsafe() -> None:
    def job(loop: SimLoop, future: asyncio.Future[str]) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match="threadsafe"):
            loop.call_soon(print)
        with pytest.raises(RuntimeError, match="threadsafe"):
            loop.call_later(1, print)
        loop.call_soon_threadsafe(future.set_result, "done")

    with SimLoop(1) as loop:
        future: asyncio.Future[str] = loop.create_future()
        loop.run_until_complete(loop.run_in_executor(None, job, loop, future))
        assert loop.run_until_complete(future) == "done"


def test_a_failing_job_fails_its_future_and_a_cancelled_one_is_silent() -> None:
    async def scenario(loop: SimLoop) -> None:
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        job = loop.run_in_executor(None, lambda: 1 // 0)
        job.cancel()
        await asyncio.sleep(1)
        assert job.cancelled()

    with SimLoop(1) as loop:
        loop.run_until_complete(scenario(loop))


def test_what_is_not_simulated_is_refused_by_name() -> None:
    with SimLoop(1) as loop, pytest.raises(NotImplementedError, match="add_reader"):
        loop.add_reader(0, print)


def test_an_abandoned_generator_is_closed_on_the_loop() -> None:
    ended: list[float] = []

    async def scenario(loop: SimLoop) -> None:
        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(1)
                ended.append(loop.time())

        async for _ in numbers():
            break
        await asyncio.sleep(5)

    with SimLoop(1) as loop:
        loop.run_until_complete(scenario(loop))
    assert len(ended) == 1


def test_the_clock_follows_virtual_time_and_jumps() -> None:
    with SimLoop(1) as loop:
        clock = SimClock(loop, base_epoch_ms=1_000_000)
        loop.run_for(2.5)
        assert clock.now_ms() == 1_002_500
        clock.jump(-2_000)
        assert clock.now_ms() == 1_000_500


def test_runner_can_own_the_loop() -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        assert runner.run(asyncio.sleep(5, "done")) == "done"
