"""Whatever ends a task that should not end, its owner hears of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.core.tasks import TaskEndedError, Tasks, endless

Work = Callable[[], Coroutine[Any, Any, None]]


async def _fails() -> None:
    raise ValueError("a bug")


async def _ends() -> None:
    await asyncio.sleep(0)


async def _waits_for_what_is_cancelled() -> None:
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other


async def _goes_on() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("work", "error"),
    [(_fails, ValueError), (_ends, TaskEndedError), (_waits_for_what_is_cancelled, TaskEndedError)],
)
def test_the_owner_hears_of_every_end(work: Work, error: type[Exception]) -> None:
    async def story() -> list[tuple[str, type[BaseException]]]:
        ended: list[tuple[str, type[BaseException]]] = []
        tasks = Tasks(asyncio.get_running_loop(), lambda name, error: ended.append((name, type(error))))
        task = tasks.start(work, "one")
        tasks.start(_goes_on, "other")
        await asyncio.wait([task])
        await asyncio.sleep(0)
        await tasks.close()
        return ended

    assert asyncio.run(story()) == [("one", error)]


def test_a_child_of_a_group_that_ends_in_any_way_takes_the_group_with_it() -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(endless(_goes_on))
            group.create_task(endless(_waits_for_what_is_cancelled))

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(story())
    assert isinstance(raised.value.exceptions[0], TaskEndedError)


def test_closed_tasks_end_before_close_returns_and_are_nobodys_news() -> None:
    async def story() -> list[str]:
        told: list[str] = []

        async def tidies_up() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                told.append("tidied")

        tasks = Tasks(asyncio.get_running_loop(), lambda name, error: told.append(name))
        tasks.start(tidies_up, "one")
        tasks.start(_goes_on, "never began")
        await asyncio.sleep(0)
        await tasks.close()
        return told

    assert asyncio.run(story()) == ["tidied"]
