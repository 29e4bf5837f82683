"""Long work on the loop, cut so that others get their turn: clients, timers, finished syncs."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.core.limits import TURN_ITEMS_MAX, TURN_SECONDS_MAX

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


async def in_turns(make: Callable[[_Item], _Made], items: Iterable[_Item]) -> list[_Made]:
    """What `make` makes of each item, in order; others go first once in a while."""
    made = []
    for number, item in enumerate(items):
        await give_way(number)
        made.append(make(item))
    return made


async def give_way(number: int, at_once: int = TURN_ITEMS_MAX) -> None:
    """Before item `number` (from 0) of many: lets others go first, once in a while."""
    if number and number % at_once == 0:
        await asyncio.sleep(0)


class Turn:
    """For items of which some take long: others go first when so much time was spent, however many that were."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()

    async def give_way(self) -> None:
        """Before each item. Whoever waited for something in between may give way once too often."""
        if self._now() - self._since >= TURN_SECONDS_MAX:
            await asyncio.sleep(0)
            self._since = self._now()
