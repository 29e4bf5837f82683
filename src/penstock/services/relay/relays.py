"""Which relays run here: one for every retired partition that this broker leads."""

import asyncio
from concurrent.futures import Executor

from penstock.coordination.image import ClusterImage
from penstock.replication.partition import Partition
from penstock.replication.retirement import is_retired
from penstock.services.peers.peers import Peers
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.pump import Moved, Pump
from penstock.services.relay.routes import Route


class Relays:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        node: int,
        image: ClusterImage,
        peers: Peers,
        inbox: RelayInbox,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._node = node
        self._image = image
        self._peers = peers
        self.inbox = inbox
        self.moved = Moved()
        self._wanted: dict[Partition, int] = {}  # the leader epoch of each
        self._changed = asyncio.Event()

    def role_changed(self, partition: Partition) -> None:
        """It began or ceased to lead, or was retired while it led."""
        if partition.retirement is not None or partition in self._wanted:
            self._wanted.pop(partition, None)
            if partition.is_leader and is_retired(partition):
                self._wanted[partition] = partition.leader_epoch
            self._changed.set()

    def topic_deleted(self, topic_id: bytes) -> None:
        for partition in [one for one in self._wanted if one.topic_id == topic_id]:
            del self._wanted[partition]
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        running: dict[tuple[Partition, int], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                wanted = list(self._wanted.items())
                for key in [key for key in running if key not in wanted]:
                    running.pop(key).cancel()
                for partition, epoch in wanted:
                    route = self._route(partition)
                    if (partition, epoch) not in running and route is not None:
                        pump = Pump(self._loop, self._executor, partition, route, self.moved)
                        name = f"relay of {partition.topic}-{partition.index}"
                        running[partition, epoch] = tasks.create_task(pump.run(), name=name)
                await self._changed.wait()

    def _route(self, partition: Partition) -> Route | None:
        # Not of the table, which may be about to learn of it.
        topic = self._image.topics_by_id.get(partition.topic_id)
        retired = [] if topic is None else [one.retirement for one in topic.partitions]
        retirement = retired[partition.index] if partition.index < len(retired) else None
        if topic is None or retirement is None:
            return None  # it was deleted in this moment
        return Route(
            self._node,
            self._image,
            self._peers,
            self.inbox,
            topic.id,
            partition.index,
            retirement.into,
        )
