"""Long work on the loop, cut so that others get their turn: clients, timers, finished syncs."""

import asyncio

from penstock.core.limits import TURN_ITEMS_MAX


async def give_way(number: int, at_once: int = TURN_ITEMS_MAX) -> None:
    """Before item `number` (from 0) of many: lets others go first, once in a while."""
    if number and number % at_once == 0:
        await asyncio.sleep(0)
