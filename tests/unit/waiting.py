"""Waiting for what nobody tells of: the loop turns until it is so. A test that waits in vain ends by its time limit."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody says so
        await asyncio.sleep(0)
