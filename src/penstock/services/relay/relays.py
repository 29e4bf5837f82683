"""Which relays run here: one for every route that begins in a partition that this broker leads."""

import asyncio
from collections.abc import Callable, Mapping

from penstock.coordination.image import ClusterImage, ImageDelta
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable
from penstock.services.peers.peers import Peers
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.pump import Moved, Pump
from penstock.services.relay.sender import RelaySender
from penstock.services.relay.source import Source

# What a partition is as the source of one kind of route; None: nothing yet, and its role is told of again.
MakeSource = Callable[[Partition], Source | None]


class Relays:
    def __init__(
        self,
        node: int,
        image: ClusterImage,
        table: PartitionTable,
        peers: Peers,
        inbox: RelayInbox,
        sources: Mapping[int, MakeSource],
    ) -> None:
        """`sources`: by kind."""
        self._node = node
        self._image = image
        self._table = table
        self._peers = peers
        self.inbox = inbox
        self._sources = sources
        self.moved = Moved()
        self._wanted: dict[Partition, tuple[int, tuple[RelayRoute, ...]]] = {}  # with the leader epoch
        self._changed = asyncio.Event()
        table.routes.listen(self._routes_changed)

    def role_changed(self, partition: Partition) -> None:
        """It began or ceased to lead, or is another source than it was, while it led."""
        before = self._wanted.pop(partition, None)
        routes = self._table.routes.out_of(partition.topic_id, partition.index)
        if partition.is_leader and routes:
            self._wanted[partition] = partition.leader_epoch, routes
        if before is not None or routes:
            self._changed.set()

    def _routes_changed(self, topic_id: bytes) -> None:
        topic = self._table.by_id.get(topic_id)
        for partition in () if topic is None else list(topic.led.values()):
            self.role_changed(partition)

    def image_changed(self, delta: ImageDelta) -> None:
        gone = {topic.id for topic in delta.topics_gone}
        for partition in [partition for partition in self._wanted if partition.topic_id in gone]:
            del self._wanted[partition]
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        running: dict[tuple[Partition, int, RelayRoute], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                # A dictionary for its order: there may be thousands, and each is looked for.
                wanted = {
                    (partition, epoch, route): None
                    for partition, (epoch, routes) in self._wanted.items()
                    for route in routes
                }
                for key in [key for key in running if key not in wanted]:
                    running.pop(key).cancel()
                for partition, epoch, route in wanted:
                    if (partition, epoch, route) not in running:
                        source = self._sources[route.kind](partition)
                        if source is not None:
                            pump = Pump(source, self._sender(route), self.moved)
                            name = f"relay of {partition.topic}-{partition.index}"
                            running[partition, epoch, route] = tasks.create_task(pump.run(), name=name)
                await self._changed.wait()

    def _sender(self, route: RelayRoute) -> RelaySender:
        return RelaySender(self._node, self._image, self._peers, self.inbox, route)
