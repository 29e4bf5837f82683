"""The bridge to kazoo, which nobody else talks to: one client, one session, everything awaited on the event loop.

kazoo has threads of its own and swallows what its callbacks raise. So a callback does one thing, hand over to the
loop, and all decisions are made there.

After a session has expired kazoo would begin another by itself, under which whatever is sent next would go. Here the
link is over from the very moment kazoo says so, in its own thread: nothing is sent any more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss, KazooException, WriterNotClosedException
from kazoo.exceptions import NodeExistsError as KazooNodeExistsError
from kazoo.exceptions import NoNodeError as KazooNoNodeError
from kazoo.exceptions import SessionExpiredError as KazooSessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from penstock.coordination.tree import (
    BadRequestError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Operation,
    SessionExpiredError,
    Set,
)
from penstock.coordination.zookeeper.address import Address
from penstock.coordination.zookeeper.handler import ImpatientHandler
from penstock.coordination.zookeeper.kazoo_errors import Refused, mapped, refused
from penstock.coordination.zookeeper.layout import REQUEST_BYTES_MAX, request_bytes, unsigned

logger = logging.getLogger(__name__)

# Between attempts to connect: soon at first, and never so late that a server that is back is kept waiting.
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
# kazoo tells of every lost connection and every attempt; what matters of it is logged here.
_KAZOO_LOG = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)

# Reads under way at once: enough to hide the round trips, few enough to hold in memory.
_AT_ONCE = 256

Watch = Callable[[], None]


class Stored(NamedTuple):
    data: bytes
    version: int
    children: int


class Link:
    def __init__(
        self, address: Address, session_timeout_s: float, credential: str | None, moved: Callable[[], None]
    ) -> None:
        """`credential` is `user:password`; `moved` is called on the loop when connected, disconnected or over."""
        self._address = address
        self._credential = credential
        self._moved = moved
        self._session_timeout_s = session_timeout_s
        self._loop = asyncio.get_running_loop()
        self._client = KazooClient(
            hosts=address.hosts,
            timeout=session_timeout_s,
            auth_data=[("digest", credential)] if credential else None,
            connection_retry=dict(_RETRY),
            handler=ImpatientHandler(session_timeout_s),
            logger=_KAZOO_LOG,
        )
        self._client.add_listener(self._heard)
        self._acl = CREATOR_ALL_ACL if credential else OPEN_ACL_UNSAFE
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._connected = asyncio.Event()
        self._was_connected = False
        self._over = False
        self._closing: asyncio.Future[None] | None = None
        self.session = 0

    @property
    def connected(self) -> bool:
        return self._connected.is_set() and not self._over

    @property
    def over(self) -> bool:
        return self._over

    async def open(self, patience_s: float) -> None:
        """Begin the session; `ConnectionLostError` when nobody answers in that time."""
        self._client.start_async()
        try:
            async with asyncio.timeout(patience_s):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLostError(
                f"ZooKeeper at {self._address.hosts} does not answer: start it, or check zookeeper.connect"
            ) from None
        identity = self._client.client_id
        if identity is None:
            raise ConnectionLostError(f"ZooKeeper at {self._address.hosts} closed the connection at once")
        self.session = unsigned(identity[0])

    async def close(self) -> None:
        """End the session. In a thread: kazoo waits for its own."""
        self._over = True
        await asyncio.shield(self._begin_to_close())
        self._fail_waiting()

    def _begin_to_close(self) -> "asyncio.Future[None]":
        if self._closing is None:
            self._closing = self._loop.run_in_executor(None, self._stop)
        return self._closing

    def _stop(self) -> None:
        with suppress(WriterNotClosedException, OSError, AttributeError):
            self._client.stop()
            self._client.close()

    # -- calls --

    async def get(self, path: str, watch: Watch | None = None) -> Stored | None:
        found = await self._call(lambda: self._client.get_async(path, self._watcher(watch)), missing=None)
        return None if found is None else Stored(found[0], found[1].version, found[1].numChildren)

    async def length_bytes(self, path: str) -> int | None:
        stat = await self._call(lambda: self._client.exists_async(path))
        return None if stat is None else int(stat.dataLength)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Empty where there is no node."""
        names: list[str] = await self._call(
            lambda: self._client.get_children_async(path, self._watcher(watch)), missing=[]
        )
        return names

    async def get_each(self, paths: Sequence[str]) -> list[Stored | None]:
        """Many at once, for a fraction of what as many single calls cost: a thread waits for all of them."""
        found = await self._call_each([partial(self._client.get_async, path) for path in paths])
        return [
            None if node is None else Stored(node[0], node[1].version, node[1].numChildren) for node in found
        ]

    async def children_each(self, paths: Sequence[str]) -> list[list[str]]:
        found = await self._call_each([partial(self._client.get_children_async, path) for path in paths])
        return [names or [] for names in found]

    async def sync(self, path: str) -> None:
        """What is read next is as new as the ensemble's leader was when this was asked."""
        await self._call(lambda: self._client.sync_async(path), missing=None)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, open_to_all: bool = False
    ) -> bool:
        """False when it is there already."""
        acl = OPEN_ACL_UNSAFE if open_to_all else self._acl
        made = await self._call(
            lambda: self._client.create_async(path, data, acl=acl, ephemeral=ephemeral), exists=False
        )
        return made is not False

    async def multi(self, operations: Sequence[Operation]) -> Refused | None:
        """All of it (None), or nothing."""
        size_bytes = request_bytes(operations)
        if size_bytes > REQUEST_BYTES_MAX:
            raise BadRequestError(f"{size_bytes} bytes are more than ZooKeeper takes: write it in parts")
        request = self._client.transaction()
        for operation in operations:
            self._add(request, operation)
        outcomes = await self._call(request.commit_async)
        return refused(outcomes, self._address, self._credential)

    def _add(self, request: TransactionRequest, operation: Operation) -> None:
        match operation:
            case Check(path, version):
                request.check(path, version)
            case Create(path, data, ephemeral):
                request.create(path, data, acl=self._acl, ephemeral=ephemeral)
            case Set(path, data, version):
                request.set_data(path, data, version)
            case Delete(path, version):
                request.delete(path, version)

    async def _call(self, begin: Callable[[], Any], **instead: Any) -> Any:
        """Await kazoo's answer; `missing` or `exists`, where given, stands for a node that is not there, or is."""
        self._check()
        future = self._loop.create_future()
        self._waiting[future] = None
        try:
            begin().rawlink(lambda result: self._hand_over(_answered, future, result))
            return await future
        except KazooException as error:
            if isinstance(error, KazooNoNodeError) and "missing" in instead:
                return instead["missing"]
            if isinstance(error, KazooNodeExistsError) and "exists" in instead:
                return instead["exists"]
            raise mapped(error, self._address, self.session, self._credential) from error
        finally:
            self._waiting.pop(future, None)

    async def _call_each(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        self._check()
        try:
            return await self._loop.run_in_executor(None, self._wait_for_each, calls)
        except KazooException as error:
            raise mapped(error, self._address, self.session, self._credential) from error

    def _wait_for_each(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """In a thread. None stands for a node that is not there."""
        answers: list[Any] = []
        for start in range(0, len(calls), _AT_ONCE):
            for result in [call() for call in calls[start : start + _AT_ONCE]]:
                try:
                    answers.append(result.get(timeout=self._session_timeout_s))
                except KazooNoNodeError:
                    answers.append(None)
                except KazooTimeoutError:
                    raise ConnectionLoss from None  # kazoo holds it back until it is connected again
        return answers

    def _check(self) -> None:
        if self._over:
            raise SessionExpiredError(f"session {self.session:016x} is over")
        if not self._connected.is_set():
            raise ConnectionLostError(f"ZooKeeper at {self._address.hosts} cannot be reached")

    # -- from kazoo's threads --

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            # Here, not on the loop: kazoo goes on to connect under a new session.
            self._over = True
        self._hand_over(self._changed, state)

    def _watcher(self, watch: Watch | None) -> Callable[[Any], None] | None:
        return None if watch is None else _Watcher(self._hand_over, watch)

    def _hand_over(self, act: Callable[..., None], *arguments: Any) -> None:
        # A loop that is closed has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act, *arguments)

    # -- on the loop --

    def _changed(self, state: str) -> None:
        if state == KazooState.CONNECTED and not self._over:
            if self._was_connected:
                logger.info("connected to ZooKeeper at %s again", self._address.hosts)
            self._was_connected = True
            self._connected.set()
        else:
            if state == KazooState.SUSPENDED:
                logger.warning("lost the connection to ZooKeeper at %s", self._address.hosts)
            self._connected.clear()
            self._fail_waiting()
            if self._over:
                self._begin_to_close()
        self._moved()

    def _fail_waiting(self) -> None:
        """What was asked and not answered: kazoo may hold some of it back until it is connected again."""
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(KazooSessionExpiredError() if self._over else ConnectionLoss())


class _Watcher:
    """Equal to every other with the same target: kazoo keeps watchers in a set, and asking again adds none."""

    def __init__(self, hand_over: Callable[..., None], watch: Watch) -> None:
        self._hand_over = hand_over
        self._watch = watch

    def __call__(self, event: Any) -> None:
        self._hand_over(self._watch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)


def _answered(future: "asyncio.Future[Any]", result: Any) -> None:
    if future.done():
        return  # cancelled, or given up when the connection went
    if result.exception is None:
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)
