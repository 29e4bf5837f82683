"""Who asks for much goes on when everybody else has had a turn: one connection in each turn of the loop.

Addresses have theirs one after the other: a thousand connections of one hold a client at another up for one request,
not for a thousand.
"""

import asyncio
from typing import Protocol

from penstock.core.address_queue import AddressQueue


class Taking(Protocol):
    """A connection, as far as its turn goes."""

    @property
    def peer(self) -> str: ...

    def take_turn(self) -> None: ...


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: AddressQueue[Taking] = AddressQueue()
        self._is_due = False  # the loop will call for the next one

    def queue(self, connection: Taking) -> None:
        self._waiting.append(connection.peer, connection)
        self._call_for_next()

    def _call_for_next(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        connection = self._waiting.pop(next(iter(self._waiting)))
        self._is_due = False
        try:
            connection.take_turn()  # it may queue up again, behind the others
        finally:
            self._call_for_next()
