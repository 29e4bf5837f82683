"""The target's end of a relay: takes what is not here yet, drops what is, and answers once it is committed.

What was good enough for the source is taken as it is: neither size nor time nor compression is looked at again, or a
setting that was changed in between would keep acknowledged records from ever arriving.
"""

import asyncio

from penstock.coordination.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import check_batch, read_header, stamp_append_time
from penstock.records.relay import RELAY_IDS, Relayed, RelayPlace, relayed_by
from penstock.replication.introduction import is_registered
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.acknowledging import ALL, check_acks


class RelayInbox:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, table: PartitionTable, image: ClusterImage
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._table = table
        self._image = image

    def check_sender(self, broker: int, broker_epoch: int) -> None:
        """ApiError unless it is a broker as it is registered.

        What is taken here says how far a relay is. One that says more than its source has moved makes a repeat of what
        the source moves next, and that is lost.
        """
        if not is_registered(self._image, broker, broker_epoch):
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "no broker of that epoch is known here")

    def places(self, topic_id: bytes, index: int, source: int) -> tuple[RelayPlace, ...]:
        """How far the relay from `source` is here; ApiError while a fail-over could still take that back.

        The latest first, and behind it what is here of the logs of earlier leaders.
        """
        partition = self._find(topic_id, index)[1]
        position = partition.log.producers.relays.get(source)
        if position is not None and not position.is_committed(partition.high_watermark):
            raise not_committed()
        return () if position is None else position.places()

    async def take(self, topic_id: bytes, index: int, batches: memoryview, timeout_s: float) -> int:
        """Append whole batches, one behind the other; returns the first's offset, once all are committed."""
        topic, partition = self._find(topic_id, index)
        check_acks(partition, ALL)
        first = last = -1
        position = 0
        while position < len(batches):
            header = check_batch(batches, position)
            batch = batches[position : position + header.size_bytes]
            position += header.size_bytes
            if header.producer_id < RELAY_IDS or topic.relays.get(relayed_by(header).source) != index:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"no partition of {topic.name} that is retired, as far as is known here, relays into {index}",
                )
            self._check_epoch(topic_id, relayed_by(header))
            now_ms = self._clock.now_ms()
            if topic.uses_append_time and not header.is_control:
                stamp_append_time(batch, 0, now_ms)
                header = read_header(batch)
            offset, last = partition.append_relayed(batch, header, now_ms)
            first = offset if first < 0 else first
        if last >= 0 and not partition.is_committed(last):
            await self._committed(partition, last, timeout_s)
        return first

    def _check_epoch(self, topic_id: bytes, moved: Relayed) -> None:
        """No source has anything of a later epoch than its leader's; one that we have not heard of has to wait."""
        topic = self._image.topics_by_id.get(topic_id)
        states = () if topic is None else topic.partitions[moved.source : moved.source + 1]
        if not states or moved.epoch > states[0].leader_epoch:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"nobody leads {moved.source} under {moved.epoch} yet"
            )

    def _find(self, topic_id: bytes, index: int) -> tuple[Topic, Partition]:
        topic = self._table.by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.led.get(index)
        if partition is None:
            raise ApiError(topic.missing(index))
        return topic, partition

    async def _committed(self, partition: Partition, last: int, timeout_s: float) -> None:
        waiter = Committed(self._loop)
        partition.limits.wait_for_commit(last, waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.done
        except TimeoutError as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too few replicas have it in time") from error


def not_committed() -> ApiError:
    """The source keeps its records until then: what the target has only appended it may still lose."""
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "what was moved last is not committed yet")


class Committed:
    """An `AckWaiter` that somebody awaits."""

    __slots__ = ("done",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done = loop.create_future()

    def committed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, code: ErrorCode, message: str) -> None:
        if not self.done.done():
            self.done.set_exception(ApiError(code, message))
