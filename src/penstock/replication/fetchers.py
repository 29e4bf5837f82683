"""All fetchers of this broker: which partition follows which leader, with one conversation per leader (`fetcher`)."""

import asyncio
import logging

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.coordination.image import ClusterImage
from penstock.core.tasks import Tasks
from penstock.replication.fetcher import Fetcher, FetcherContext
from penstock.replication.following import Follower
from penstock.replication.introduction import Identity
from penstock.replication.partition import Partition
from penstock.replication.throttle import FOLLOWER_REPLICAS, Throttle

logger = logging.getLogger(__name__)


class Fetchers:
    """`follow` and `release` say which partitions."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: int,
        image: ClusterImage,
        config: LiveConfig,
        follower: Follower,
        identity: Identity,
    ) -> None:
        throttle = Throttle(node, image, FOLLOWER_REPLICAS)
        self.context = FetcherContext(node, image, config, follower, identity, throttle)
        self._by_leader: dict[int, Fetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self._tasks = Tasks(loop, self._ended)
        self._failure: asyncio.Future[None] = loop.create_future()

    def settings_changed(self, _config: BrokerConfig) -> None:
        """Nobody rests for as long as the old throttle said: a drain that is told to hurry must."""
        for fetcher in self._by_leader.values():
            fetcher.look_again()

    def follow(self, partition: Partition, leader: int, epoch: int) -> None:
        """The partition must have been released before."""
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = Fetcher(self.context, leader)
            fetcher.task = self._tasks.start(fetcher.run, name=f"fetcher of {leader}")
        self._leader_of[partition] = leader
        fetcher.add(partition, epoch)

    async def release(self, partition: Partition) -> None:
        """Follow nobody; returns once nothing works on the partition's log any more."""
        leader = self._leader_of.get(partition, -1)
        fetcher = self._by_leader.get(leader)
        if fetcher is not None:  # or it is done with this one, too: whoever waited for that was cancelled
            await fetcher.remove(partition)
        # Not before: who waits here may be cancelled, and a stop would not know for what to wait.
        self._leader_of.pop(partition, None)
        # Nor while it still works on one that another waits for.
        if fetcher is not None and fetcher.is_idle and self._by_leader.get(leader) is fetcher:
            del self._by_leader[leader]
            fetcher.stop()

    async def close(self) -> None:
        """Returns when no fetcher runs any more, and so nothing writes to any log of theirs."""
        for partition in list(self._leader_of):
            await self.release(partition)
        await self._tasks.close()

    async def run(self) -> None:
        """Until a fetcher fails as none should: a replica that nobody fetches for is none, and looks like one."""
        await asyncio.shield(self._failure)

    def _ended(self, name: str, error: BaseException) -> None:
        logger.error("the %s failed", name, exc_info=error)
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # `run` may never come to look
