"""The coordination store in memory, for the simulation: it outlives its clients and fails on command.

The store plays the remote ensemble: its nodes survive whatever happens to a broker. A client (`connect`) is one
broker's session with it. All waiting goes through the running loop, so on a simulated one time is virtual.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from penstock.coordination.feed import ChangeFeed
from penstock.coordination.state import TreeState
from penstock.coordination.tree import (
    Change,
    ConnectionLostError,
    Event,
    Node,
    Operation,
    SessionExpiredError,
    Snapshot,
    Tree,
)

SESSION_TIMEOUT_S = 6.0

Result = TypeVar("Result")


class Fault(Enum):
    """How the next call of a client goes wrong; in both cases the client cannot tell which it was."""

    REQUEST_LOST = "the store never saw it"
    ANSWER_LOST = "it happened, but the answer was lost"


class MemoryStore:
    def __init__(self) -> None:
        self._state = TreeState()
        self._feed = ChangeFeed()
        self._sessions: dict[int, MemoryTree] = {}
        self._session_last = 0

    async def connect(
        self, *, session_timeout_s: float = SESSION_TIMEOUT_S, delay_s: Callable[[], float] = lambda: 0.0
    ) -> "MemoryTree":
        """A new session; `delay_s` is asked for the time each request and each answer takes."""
        self._session_last += 1
        tree = MemoryTree(self, self._session_last, session_timeout_s, delay_s)
        self._sessions[tree.session] = tree
        return tree

    async def close(self) -> None:
        for session in list(self._sessions):
            self.expire(session)

    def expire(self, session: int) -> None:
        """End a session now, as if it had been silent too long."""
        tree = self._sessions.pop(session, None)
        if tree is not None:
            self._commit(self._state.owned_by(session))
            tree.mark_expired()
            self._feed.wake()

    # -- for MemoryTree --

    @property
    def state(self) -> TreeState:
        return self._state

    @property
    def feed(self) -> ChangeFeed:
        return self._feed

    def multi(self, operations: Sequence[Operation], session: int) -> Change:
        return self._commit(self._state.plan(operations, self._feed.last + 1, session))

    def _commit(self, events: tuple[Event, ...]) -> Change:
        previous = self._feed.last
        if not events:
            return Change(previous, previous, ())
        change = Change(previous + 1, previous, events)
        self._state.apply(events)
        self._feed.publish(change)
        return change


class MemoryTree:
    """A `Tree` whose connection the test holds in its hands."""

    def __init__(
        self, store: MemoryStore, session: int, session_timeout_s: float, delay_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._session = session
        self._session_timeout_s = session_timeout_s
        self._delay_s = delay_s
        self._faults: deque[Fault | None] = deque()
        self._expiry: asyncio.TimerHandle | None = None
        self._connected = True
        self._expired = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def session(self) -> int:
        return self._session

    # -- what a test may do to it --

    def fail_next(self, fault: Fault, times: int = 1, *, after: int = 0) -> None:
        """So many calls go wrong, after so many that go well."""
        self._faults.extend([None] * after + [fault] * times)

    def disconnect(self) -> None:
        """Cut the connection, or crash the broker behind it: without `reconnect` in time the session expires."""
        if self._connected and not self._expired.is_set():
            self._connected = False
            self._expiry = self._loop.call_later(self._session_timeout_s, self._store.expire, self._session)
            self._store.feed.wake()

    def reconnect(self) -> None:
        if not self._expired.is_set():
            self._connected = True
            self._stop_expiry()

    def mark_expired(self) -> None:
        """Called by the store once the session's nodes are gone."""
        self._stop_expiry()
        self._expired.set()

    # -- Tree --

    async def get(self, path: str) -> Node | None:
        return await self._call(lambda: self._store.state.get(path))

    async def children(self, path: str) -> tuple[str, ...]:
        return await self._call(lambda: self._store.state.children(path))

    async def snapshot(self, path: str = "/") -> Snapshot:
        return await self._call(lambda: self._store.state.snapshot(path, self._store.feed.last))

    async def multi(self, operations: Sequence[Operation]) -> Change:
        return await self._call(lambda: self._store.multi(operations, self._session))

    async def changes(self, after: int) -> AsyncIterator[Change]:
        async for change in self._store.feed.after(after, self._check_session):
            await asyncio.sleep(self._delay_s())
            self._check_session()
            yield change

    async def until_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        self._store.expire(self._session)

    async def _call(self, act: Callable[[], Result]) -> Result:
        self._check_session()
        fault = self._faults.popleft() if self._faults else None
        await asyncio.sleep(self._delay_s())
        self._check_session()
        if fault is Fault.REQUEST_LOST:
            raise ConnectionLostError("the coordination store did not answer")
        result = act()
        await asyncio.sleep(self._delay_s())
        self._check_session()
        if fault is Fault.ANSWER_LOST:
            raise ConnectionLostError("the coordination store did not answer")
        return result

    def _check_session(self) -> None:
        if self._expired.is_set():
            raise SessionExpiredError(f"session {self._session} is over")
        if not self._connected:
            raise ConnectionLostError("the coordination store cannot be reached")

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


if TYPE_CHECKING:

    def _is_a_tree(tree: MemoryTree) -> Tree:
        return tree
