"""A follower fetcher: the conversation with one leader, for all partitions that it leads and this broker follows.

A fetch is a long poll, and names only what changed since the last one (`fetch_session`). When partitions come or go it
is broken off and asked anew: nobody waits for it who has just got a new leader. A partition whose answer says that
something is amiss rests for a while, the others go on.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.config.live import LiveConfig
from penstock.config.settings import LONG_MAX
from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.replication.fetch_session import SESSION_ERRORS, FetchPosition, Key, LeaderSession
from penstock.replication.following import Follower
from penstock.replication.introduction import Identity
from penstock.replication.leader_questions import LeaderQuestions
from penstock.replication.leading import UNKNOWN
from penstock.replication.partition import Partition
from penstock.replication.peer import Peer, PeerError
from penstock.replication.throttle import Throttle
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
_TOO_EARLY = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_EARLY_SECONDS = 0.05
# Beyond the time the leader may let us wait.
_ANSWER_SECONDS = 5.0


class _InterruptedError(PeerError):
    """Partitions came or went, and the question is put anew, or not at all."""


@dataclass(slots=True)
class _Followed:
    epoch: int
    rests_until: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class FetcherContext:
    """What all fetchers of this broker go by."""

    node: int
    image: ClusterImage
    config: LiveConfig
    follower: Follower
    identity: Identity
    throttle: Throttle


class Fetcher:
    """The conversation with one leader."""

    def __init__(self, context: FetcherContext, leader: int) -> None:
        self._context = context
        self._leader = leader
        self.partitions: dict[Partition, _Followed] = {}
        self.task: asyncio.Task[None] | None = None
        self._peer: Peer | None = None
        self._session = LeaderSession()
        self._asking: asyncio.Task[Any] | None = None
        self._busy: asyncio.Event = asyncio.Event()  # cleared while an answer is being taken over
        self._busy.set()
        self._taking: Partition | None = None
        self._woken = asyncio.Event()

    def add(self, partition: Partition, epoch: int) -> None:
        self.partitions[partition] = _Followed(epoch)
        self._session.begin_anew()  # of what it is told under way, nothing is taken over
        self.look_again()
        if self._taking is None:
            self._interrupt()

    def look_again(self) -> None:
        """Not at the end of its rest, but now."""
        self._woken.set()

    @property
    def is_idle(self) -> bool:
        return not self.partitions and self._taking is None

    async def remove(self, partition: Partition) -> None:
        self.partitions.pop(partition, None)
        self._session.begin_anew()
        if self._taking in (None, partition):
            self._interrupt()
        while self._taking is partition:
            await self._busy.wait()

    def _interrupt(self) -> None:
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self._peer is not None:
            self._peer.close()

    async def run(self) -> None:
        while True:
            try:
                answers = await self._ask()
            except PeerError as error:
                logger.info("broker %d: %s", self._leader, error)
                await self._rest(self._backoff_s)
                continue
            for partition, asked, answer in answers:
                await self._take(partition, asked, answer)
            if not answers:
                await asyncio.sleep(0)

    @property
    def _rate(self) -> int:
        return self._context.config.now.follower_replication_throttled_rate

    def _ready_at(self, partition: Partition, followed: _Followed, now: float) -> float:
        """When it may be asked for again."""
        if not self._is_throttled(partition):
            return followed.rests_until
        return max(followed.rests_until, self._context.throttle.opens_at(self._rate, now))

    def _is_throttled(self, partition: Partition) -> bool:
        return self._rate < LONG_MAX and self._context.throttle.concerns(partition, self._context.node)

    def _max_bytes(self, partition: Partition) -> int:
        """No more at once than a second is worth: an answer is taken whole."""
        most = self._context.config.now.replica_fetch_max_bytes
        return min(most, self._rate) if self._is_throttled(partition) else most

    @property
    def _backoff_s(self) -> float:
        return self._context.config.now.replica_fetch_backoff_ms / 1000

    async def _rest(self, seconds: float) -> None:
        """For so long, unless a partition comes that has not failed yet, or other settings."""
        self._woken.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _alone(self, partition: Partition, work: Coroutine[None, None, bool]) -> bool:
        """Whoever would have the partition back waits for it."""
        self._taking = partition
        self._busy.clear()
        try:
            return await work
        finally:
            self._taking = None
            self._busy.set()

    async def _take(self, partition: Partition, followed: _Followed, answer: PartitionData) -> None:
        # Not one to a question of before: its log may have been opened again since, and end elsewhere.
        if self.partitions.get(partition) is not followed:
            return
        epoch = followed.epoch
        leader = LeaderQuestions(self._question, self._context.node, partition, epoch)
        went_well = await self._alone(
            partition, self._context.follower.take(partition, epoch, answer, leader)
        )
        size_bytes = len(answer.records or b"")
        if size_bytes and self._is_throttled(partition):
            self._context.throttle.took(size_bytes, self._rate, asyncio.get_running_loop().time())
        if not went_well:
            self._session.missed((partition.topic_id, partition.index))
            # The news of a new leader may reach us before it reaches the leader itself.
            is_early = answer.error_code in _TOO_EARLY
            rest_s = min(self._backoff_s, _EARLY_SECONDS) if is_early else self._backoff_s
            followed.rests_until = asyncio.get_running_loop().time() + rest_s

    async def _make_durable(self) -> None:
        """Asking for what comes next says "I have it", and that means durable where the topic wants `synced`.

        What a follower takes over is. What it wrote as a leader, or under another setting, may not be yet.
        """
        while (unsynced := next(filter(_is_unsynced, self.partitions), None)) is not None:
            await self._alone(unsynced, self._context.follower.make_durable(unsynced))

    async def _ask(self) -> list[tuple[Partition, _Followed, PartitionData]]:
        await self._make_durable()
        request, asked = self._request()
        peer = self._connected()
        if peer is None:
            await self._rest(self._backoff_s)
            return []
        if not asked:
            now = asyncio.get_running_loop().time()
            soonest = min(
                (
                    self._ready_at(partition, followed, now) - now
                    for partition, followed in self.partitions.items()
                ),
                default=self._backoff_s,
            )
            await self._rest(soonest if soonest > 0 else self._backoff_s)
            return []
        timeout_s = self._context.config.now.replica_fetch_wait_max_ms / 1000 + _ANSWER_SECONDS
        try:
            response: FetchResponse = await self._told(
                peer.ask(ApiKey.FETCH, FETCH_VERSION, request, timeout_s)
            )
        except _InterruptedError:
            self._session.begin_anew()
            return []
        except BaseException:
            self._session.begin_anew()
            raise
        if response.error_code in SESSION_ERRORS:
            self._session.begin_anew()
            return []
        if response.error_code != ErrorCode.NONE:
            self._session.begin_anew()
            raise PeerError(f"the fetch was answered with {response.error_code}")
        self._session.answered(response.session_id)
        return [
            (*asked[topic.topic_id, answer.partition_index], answer)
            for topic in response.responses
            for answer in topic.partitions
            if (topic.topic_id, answer.partition_index) in asked
        ]

    async def _told(self, question: Coroutine[Any, Any, Any]) -> Any:
        """What the leader says to it, unless somebody interrupts."""
        self._asking = asyncio.get_running_loop().create_task(question, name=f"question to {self._leader}")
        try:
            await asyncio.wait([self._asking])
            if self._asking.cancelled():
                raise _InterruptedError("nobody waits for the answer any more")
            return self._asking.result()
        finally:
            self._interrupt()
            self._asking = None

    async def _question(self, api_key: int, version: int, request: Any) -> Any:
        peer = self._connected()
        if peer is None:
            raise PeerError(f"broker {self._leader} is not there")
        return await self._told(peer.ask(api_key, version, request, _ANSWER_SECONDS))

    def _connected(self) -> Peer | None:
        registered = self._context.image.brokers.get(self._leader)
        if registered is None:
            return None
        address = (registered.host, registered.port)
        if self._peer is None or self._peer.address != address:
            if self._peer is not None:
                self._peer.close()
            self._peer = Peer(self._leader, *address, self._context.identity, "fetcher")
        return self._peer

    def _request(self) -> tuple[FetchRequest, dict[Key, tuple[Partition, _Followed]]]:
        config, now = self._context.config.now, asyncio.get_running_loop().time()
        wanted: dict[Key, FetchPosition] = {}
        asked: dict[Key, tuple[Partition, _Followed]] = {}
        for partition, followed in self.partitions.items():
            log = partition.log
            if self._ready_at(partition, followed, now) > now or log.failed:
                continue
            key = (partition.topic_id, partition.index)
            size_max = self._max_bytes(partition)
            latest, start = log.epochs.latest, log.start_offset
            if log.is_incomplete:
                # Whoever does not say where its log starts is let in by no leader, however far it reaches.
                latest = start = UNKNOWN
            wanted[key] = FetchPosition(followed.epoch, log.end_offset, latest, start, size_max)
            asked[key] = (partition, followed)
        topics, forgotten = self._session.ask(wanted)
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._context.node, replica_epoch=self._context.identity.broker_epoch()
            ),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        return request, asked


def _is_unsynced(partition: Partition) -> bool:
    log = partition.log
    return partition.sync_before_ack and log.synced_end.offset < log.end_offset and not log.failed
