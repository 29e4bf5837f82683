"""Whether this broker still leads what it thinks it leads, asked of the coordination store.

A leader may have been replaced and not have heard of it: while it slept, or while the store was out of its reach. It
acknowledges nothing and shows nothing then that its successor does not have, for that takes followers of its own epoch.
But it knows less: an offset that lies beyond its log may be its successor's. A client that is told that there is no
such place throws its own away, so this is said only by who has looked after it was asked.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.coordination.catching_up import CatchUp
from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

# Clients wait for a fetch for longer than that.
_STORE_SECONDS_MAX = 2.0


class InDoubt(Exception):  # noqa: N818 - a question, not an error
    """A reader's place is about to be called none, and nobody has asked whether we still lead."""


class Certainty:
    def __init__(self, node: int, image: ClusterImage, catch_up: CatchUp) -> None:
        self._node = node
        self._image = image
        self._catch_up = catch_up
        self._asking: list[Callable[[bool], None]] = []
        self._work = asyncio.Event()

    def ask(self, told: Callable[[bool], None]) -> None:
        """`told` is called later, whether the metadata here is as it was at this moment, or newer."""
        self._asking.append(told)
        self._work.set()

    async def is_current(self) -> bool:
        """What `ask` tells."""
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.ask(lambda current: None if told.done() else told.set_result(current))
        return await told

    def leads(self, partition: Partition) -> bool:
        """As the metadata says that is known here."""
        topic, index = self._image.topics_by_id.get(partition.topic_id), partition.index
        if topic is None or not 0 <= index < len(topic.partitions):
            return False
        state = topic.partitions[index]
        return (state.leader, state.leader_epoch) == (self._node, partition.leader_epoch)

    def no_place(self, partition: Partition, is_current: bool | None) -> ErrorCode:
        """What a reader is told whose place is none here; `is_current`: what `ask` told since it came, if anything."""
        if partition.leading is None and partition.retirement is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE  # nobody else could lead it: it will not be made again
        if is_current is None:
            raise InDoubt
        is_sure = is_current and self.leads(partition)
        return ErrorCode.OFFSET_OUT_OF_RANGE if is_sure else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def run(self) -> None:
        """Until cancelled. One question at a time: who comes meanwhile shares the next one."""
        while True:
            await self._work.wait()
            self._work.clear()
            asking, self._asking = self._asking, []
            is_current = await self._catch_up(_STORE_SECONDS_MAX)
            for told in asking:
                try:
                    told(is_current)
                except Exception:  # one client's, and none of the others'
                    logger.exception("a reader could not be answered")
