"""All connections of one broker, whichever listener they came in by: counted, bounded, swept and closed together."""

import asyncio
import logging
import select
from collections import Counter
from collections.abc import Coroutine

from penstock.config.broker import BrokerConfig
from penstock.core.descriptors import Descriptors
from penstock.core.limits import OWED_TOO_MUCH_SECONDS_MAX
from penstock.core.stats import RequestStats
from penstock.server.idle_poll import IdlePoll
from penstock.server.receiving import ReceiveBudget
from penstock.server.sending import SendBudget
from penstock.server.stream import Stream
from penstock.server.turns import Turns

logger = logging.getLogger(__name__)

# How often connections are looked for that are idle, or whose clients went unnoticed; they may overstay by this much.
_SWEEP_SECONDS = 2.0
# How long requests under way may take when all is closed, and to end when they are told to.
_FINISH_SECONDS = 5.0
_CANCEL_SECONDS = 1.0
# After this long without a request a connection keeps no more memory than a new one.
_QUIET_SECONDS = 5.0


class Connections:
    """The `Host` of each of them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        request_bytes_max: int,
        receiving_bytes_max: int,
        connections_max: int,
        connections_per_ip_max: int,
        idle_ms_max: int,
        descriptors: Descriptors,
        send_budget: SendBudget,
        awake_seconds: float = 0.0,
    ) -> None:
        self._loop = loop
        self.request_bytes_max = request_bytes_max
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.idle_ms_max = idle_ms_max
        self.bytes_in = 0
        self.bytes_out = 0
        self.held_bytes = 0
        self.refused = 0
        self.descriptors = descriptors
        self.requests = RequestStats()
        self.receive_budget = ReceiveBudget(loop, receiving_bytes_max)
        self.send_budget = send_budget
        self.idle_poll = IdlePoll(loop, awake_seconds)
        self._all: dict[Stream, None] = {}
        self._per_ip: Counter[str] = Counter()
        self._turns = Turns(loop)
        self._turns_of_brokers = Turns(loop)  # they must not wait for clients
        self._tasks: dict[asyncio.Task[None], None] = {}  # for its order: the simulation repeats exactly
        self._sweeper: asyncio.TimerHandle | None = None

    def settings_changed(self, config: BrokerConfig) -> None:
        """For those that come; nobody is turned out."""
        self.connections_max = min(config.max_connections, self.descriptors.connections_max)
        self.connections_per_ip_max = config.max_connections_per_ip

    @property
    def count(self) -> int:
        return len(self._all)

    # -- Host ----------------------------------------------------------------------------------------------

    def opened(self, connection: Stream) -> bool:
        if (
            len(self._all) >= self.connections_max
            or self._per_ip[connection.peer] >= self.connections_per_ip_max
        ):
            self.refused += 1
            return False
        self._all[connection] = None
        self._per_ip[connection.peer] += 1
        return True

    def closed(self, connection: Stream) -> None:
        if self._all.pop(connection, self) is None:
            self._per_ip[connection.peer] -= 1
            if not self._per_ip[connection.peer]:
                del self._per_ip[connection.peer]

    def run(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def queue(self, connection: Stream) -> None:
        turns = self._turns if connection.session.broker < 0 else self._turns_of_brokers
        turns.queue(connection)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a request failed unexpectedly", exc_info=error)

    # -- closing -------------------------------------------------------------------------------------------

    def start_sweeping(self) -> None:
        self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)

    def stop_sweeping(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _sweep(self) -> None:
        now = self._loop.time()
        oldest = now - self.idle_ms_max / 1000
        for connection in [
            stream for stream in self._all if stream.last_active < max(oldest, now - _QUIET_SECONDS)
        ]:
            if connection.is_idle(oldest):
                logger.info("closing the connection of %s: idle for too long", connection.peer)
                connection.close()
            elif connection.last_active < now - OWED_TOO_MUCH_SECONDS_MAX and connection.owes_too_much():
                logger.info("closing the connection of %s: it waits for too many requests", connection.peer)
                connection.abort()
            else:
                connection.give_back_buffer()
        self._drop_next(_left({fd: stream for stream in self._all if (fd := stream.unwatched_fd()) >= 0}))
        self.start_sweeping()

    def _drop_next(self, connections: list[Stream]) -> None:
        """One per turn of the loop: each may have thousands of requests that wait, and are given up."""
        if connections:
            connections.pop().abort()
            self._loop.call_soon(self._drop_next, connections)

    @property
    def _sweep_seconds(self) -> float:
        return min(_SWEEP_SECONDS, max(self.idle_ms_max / 1000, 0.1))

    async def close(self) -> None:
        """Close every connection and wait for the requests under way; those that take too long are broken off."""
        self.stop_sweeping()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_FINISH_SECONDS)
        for connection in list(self._all):
            connection.close()
        await self._break_off()

    async def _break_off(self) -> None:
        """What requests work with is about to go; some may be taken up to the moment when their connection is lost."""
        until = self._loop.time() + _CANCEL_SECONDS
        while self._tasks and self._loop.time() < until:
            tasks = list(self._tasks)
            await asyncio.sleep(0)  # all of them begin: else what they were to await would be left as it is
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=max(until - self._loop.time(), 0))


def _left(connections: dict[int, Stream]) -> list[Stream]:
    """Those whose clients have closed or lost the connection: reading would tell, but they are not read from."""
    poll = select.poll()
    for fd in connections:
        poll.register(fd, select.POLLRDHUP)
    return [connections[fd] for fd, _ in poll.poll(0)] if connections else []
