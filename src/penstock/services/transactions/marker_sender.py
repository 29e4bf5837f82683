"""Every partition of a transaction that ends gets its marker, wherever it is led, and the coordinator hears of it.

    Prepare committed ──▶ DueMarkers ──▶ route ──┬─▶ led here: `MarkerWriter`, many at once ──┬─▶ ending.marked
                                          ▲      ├─▶ led elsewhere: WriteTxnMarkers, by broker ┤
                                          │      └─▶ gone, as the latest metadata says ────────┘
                                          └────────── after a pause: no leader, or any error ──┘

A marker may be written twice, never left out: whoever leads takes a repeat. So everything that is not sure is done
again, with the leader as it is by then. Two errors end it: the coordinator is not the one any more
(TRANSACTION_COORDINATOR_FENCED), or the producer's epoch is not (INVALID_PRODUCER_EPOCH). The transaction stays
prepared then, until whoever coordinates it reads it again.

Nothing here outlives the shard that asked: what is due is asked for before each step by the very object that the
coordinator handed out, which no other state of it, reloaded or of another leader epoch, knows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from penstock.coordination.catching_up import CatchUp
from penstock.coordination.image import NOBODY, ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import MARKERS_PER_REQUEST_MAX, MARKERS_WRITTEN_AT_ONCE_MAX
from penstock.core.tasks import endless
from penstock.core.turns import give_way
from penstock.groups.transactions.ending import marked
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import MarkersDue
from penstock.groups.transactions.subject import TransactionalId
from penstock.replication.peer import PeerError
from penstock.replication.transactions import MarkerToWrite
from penstock.services.transactions.kind import TransactionShard
from penstock.services.transactions.marker_request import VERSION, outcomes_in, request_for
from penstock.services.transactions.markers import MarkerWriter
from penstock.wire.kafka.api_keys import ApiKey

logger = logging.getLogger(__name__)

# (broker, purpose, API key, version, request, seconds): as `services.peers` asks.
AskPeer = Callable[[int, str, int, int, Any, float], Awaitable[Any]]

_PURPOSE = "markers"
# As long as leaders wait for their followers, and a bit.
_ANSWER_SECONDS = 35.0
_RETRY_SECONDS = 0.1
_CATCH_UP_SECONDS = 5.0
_GONE = -2  # in place of a leader
_MARKED = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_STOPPING = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class DueMarkers:
    """The ticket that a coordinator fills with each `MarkersDue`, once its Prepare record is committed."""

    def __init__(self) -> None:
        self._due: list[MarkersDue] = []
        self.news = asyncio.Event()

    def fill(self, due: MarkersDue) -> None:
        self._due.append(due)
        self.news.set()

    def refuse(self, _code: ErrorCode) -> None:
        """The shard went offline before Prepare was committed. What of it is in the log is handed out anew."""

    def take(self) -> list[MarkersDue]:
        taken, self._due = self._due, []
        return taken


class _Ending:
    """One transaction's markers, as long as they are under way."""

    __slots__ = ("due", "is_stopped")

    def __init__(self, due: MarkersDue) -> None:
        self.due = due
        self.is_stopped = False


class _Retry(NamedTuple):
    at: float
    ending: _Ending
    partitions: Collection[TopicPartition]


class _Outbox:
    """What goes to one broker, and how many tasks are about it."""

    __slots__ = ("entries", "tasks")

    def __init__(self) -> None:
        self.entries: deque[tuple[_Ending, TopicPartition]] = deque()
        self.tasks = 0


class MarkerSender:
    def __init__(
        self,
        node: int,
        image: ClusterImage,
        due: DueMarkers,
        shard_of: Callable[[str], TransactionShard],
        writer: MarkerWriter,
        ask: AskPeer,
        catch_up: CatchUp,
    ) -> None:
        """`shard_of` raises ApiError where a transactional id is not coordinated here, or not yet."""
        self._node = node
        self._image = image
        self._due = due
        self._shard_of = shard_of
        self.writer = writer
        self._ask = ask
        self._catch_up = catch_up
        self._retries: deque[_Retry] = deque()  # the earliest first, since all wait for as long
        self._outboxes: dict[int, _Outbox] = {}
        self._told: set[ErrorCode] = set()  # of what nobody expects, once each
        # Transactions with anything in them whose last marker was told here.
        self.committed = self.aborted = 0

    async def run(self) -> None:
        """Until cancelled."""
        await endless(self._run)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._due.news.clear()
                for number, due in enumerate(self._due.take()):
                    await give_way(number)
                    self._route(tasks, _Ending(due), due.partitions)
                routed = 0
                while self._retries and self._retries[0].at <= loop.time():
                    await give_way(routed := routed + 1)
                    retry = self._retries.popleft()
                    self._route(tasks, retry.ending, retry.partitions)
                try:
                    async with asyncio.timeout_at(self._retries[0].at if self._retries else None):
                        await self._due.news.wait()
                except TimeoutError:
                    pass

    # -- whether it is still asked for -----------------------------------------------------------------------

    def _current(self, ending: _Ending) -> tuple[TransactionShard, TransactionalId] | None:
        """None: nobody waits for it any more, for it is over, or its shard was loaded anew or is elsewhere."""
        due = ending.due
        if ending.is_stopped:
            return None
        try:
            shard = self._shard_of(due.transactional_id)
        except ApiError:
            return None
        subject = shard.state.find(due.transactional_id)
        return (shard, subject) if subject is not None and subject.handed is due else None

    def _marker(self, ending: _Ending) -> MarkerToWrite | None:
        current, due = self._current(ending), ending.due
        if current is None:
            return None
        epoch = current[0].epoch
        return MarkerToWrite(due.producer_id, due.epoch, due.committed, epoch, due.client_version)

    # -- where it goes ---------------------------------------------------------------------------------------

    def _route(
        self, tasks: asyncio.TaskGroup, ending: _Ending, partitions: Collection[TopicPartition]
    ) -> None:
        if self._current(ending) is None:
            return
        unled = []
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader == NOBODY or (leader not in (self._node, _GONE) and leader not in self._image.brokers):
                unled.append(partition)
                continue
            outbox = self._outboxes.setdefault(leader, _Outbox())
            outbox.entries.append((ending, partition))
            if outbox.tasks < (MARKERS_WRITTEN_AT_ONCE_MAX if leader == self._node else 1):
                outbox.tasks += 1
                tasks.create_task(self._emptied(leader, outbox), name=f"markers for {leader}")
        self._again(ending, unled)

    def _leader_of(self, partition: TopicPartition) -> int:
        topic = self._image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return _GONE
        return topic.partitions[partition.partition].leader

    async def _emptied(self, leader: int, outbox: _Outbox) -> None:
        if leader == self._node:
            step = partial(self._write_here, outbox)
        elif leader == _GONE:
            step = partial(self._count_gone, outbox)
        else:
            step = partial(self._send, leader, outbox)
        try:
            while outbox.entries:
                await step()
        finally:
            outbox.tasks -= 1
            if not outbox.tasks and self._outboxes.get(leader) is outbox:
                del self._outboxes[leader]

    # -- the three ways --------------------------------------------------------------------------------------

    async def _write_here(self, outbox: _Outbox) -> None:
        ending, partition = outbox.entries.popleft()
        marker = self._marker(ending)
        if marker is None:
            return
        try:
            code = await self.writer.write(*partition, marker)
        except Exception:
            logger.exception("a marker for %s-%d fails unexpectedly, and is tried again", *partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._settle(ending, {partition: code})

    async def _send(self, leader: int, outbox: _Outbox) -> None:
        asked = self._taken(outbox)
        markers = [(ending, marker) for ending in asked if (marker := self._marker(ending)) is not None]
        if not markers:
            return
        request = request_for((marker, asked[ending]) for ending, marker in markers)
        try:
            response = await self._ask(
                leader, _PURPOSE, ApiKey.WRITE_TXN_MARKERS, VERSION, request, _ANSWER_SECONDS
            )
            told = outcomes_in(response)
        except PeerError as error:
            logger.info("broker %d was sent markers: %s", leader, error)
            told = {}
        for ending, marker in markers:
            codes = told.get(marker.producer_id, {})
            self._settle(
                ending,
                {place: codes.get(place, ErrorCode.NETWORK_EXCEPTION) for place in asked[ending]},
            )

    async def _count_gone(self, outbox: _Outbox) -> None:
        """A partition that is not in the metadata may be in later metadata, under which it was added."""
        asked = self._taken(outbox)
        is_latest = await self._catch_up(_CATCH_UP_SECONDS)
        for ending, partitions in asked.items():
            gone = [place for place in partitions if is_latest and self._leader_of(place) == _GONE]
            self._report(ending, gone)
            self._again(ending, [place for place in partitions if place not in gone])

    def _taken(self, outbox: _Outbox) -> dict[_Ending, list[TopicPartition]]:
        taken: dict[_Ending, list[TopicPartition]] = {}
        for _ in range(min(len(outbox.entries), MARKERS_PER_REQUEST_MAX)):
            ending, partition = outbox.entries.popleft()
            taken.setdefault(ending, []).append(partition)
        return taken

    # -- what came of it -------------------------------------------------------------------------------------

    def _settle(self, ending: _Ending, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self._report(ending, [place for place, code in codes.items() if code in _MARKED])
        for place, code in codes.items():
            if code in _STOPPING:
                self._stop(ending, place, code)
                return
            if not code.retriable and code not in _MARKED and code not in self._told:
                self._told.add(code)
                logger.error("a marker for %s-%d is tried again after %s", *place, code.name)
        self._again(ending, [place for place, code in codes.items() if code not in _MARKED])

    def _report(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        current, due, done = self._current(ending), ending.due, list(partitions)
        if current is not None and done:
            shard, subject = current
            shard.decide(subject, lambda: marked(subject, due, done, shard.settings, shard.now()))
            if subject.handed is not due:  # that was the last
                self.committed += due.committed
                self.aborted += not due.committed

    def _again(self, ending: _Ending, partitions: Collection[TopicPartition]) -> None:
        if partitions and self._current(ending) is not None:
            at = asyncio.get_running_loop().time() + _RETRY_SECONDS
            self._retries.append(_Retry(at, ending, partitions))
            self._due.news.set()

    def _stop(self, ending: _Ending, place: TopicPartition, code: ErrorCode) -> None:
        if self._current(ending) is not None:
            logger.warning(
                "transactional id %r stays %s until its coordinator changes: %s-%d refuses its marker with %s",
                ending.due.transactional_id,
                "PrepareCommit" if ending.due.committed else "PrepareAbort",
                *place,
                code.name,
            )
        ending.is_stopped = True
