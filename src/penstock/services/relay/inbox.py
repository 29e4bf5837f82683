"""The target's end of a relay: takes what is not here yet, drops what is, and answers once it is committed.

What was good enough for the source is taken as it is: neither size nor time nor compression is looked at again, or a
setting that was changed in between would keep acknowledged records from ever arriving.
"""

from penstock.coordination.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.formats import NewerFormatError
from penstock.records.batch import BatchHeader, check_batch, read_header, stamp_append_time
from penstock.records.relay import (
    NAMED_IDS,
    NOTHING_MOVED,
    RELAY_IDS,
    Relayed,
    RelayKind,
    RelayPlace,
    names_source,
    position_batch,
    read_position,
    relayed_by,
    stamp_name,
)
from penstock.replication.introduction import is_registered
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import PartitionTable, Topic
from penstock.services.acknowledging import ALL, check_acks, until_committed


class RelayInbox:
    def __init__(self, clock: Clock, table: PartitionTable, image: ClusterImage) -> None:
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

    def places(self, route: RelayRoute) -> tuple[RelayPlace, ...]:
        """How far the relay is here; ApiError while a fail-over could still take that back.

        The latest first, and behind it what is here of the logs of earlier leaders.
        """
        partition = self._find(route)[1]
        position = partition.log.producers.relays.get(route.source)
        if position is not None and not position.is_committed(partition.high_watermark):
            raise not_committed()
        return () if position is None else position.places()

    async def take(self, route: RelayRoute, batches: memoryview, timeout_s: float) -> int:
        """Append whole batches, one behind the other; returns the first's offset, once all are committed."""
        topic, partition = self._find(route)
        check_acks(partition, ALL)
        if route not in self._table.routes:
            raise _no_route(route)
        first = last = -1
        position = 0
        while position < len(batches):
            header = check_batch(batches, position)
            batch = batches[position : position + header.size_bytes]
            position += header.size_bytes
            self._check_epoch(route, _moved_by(route, header, batch))
            now_ms = self._clock.now_ms()
            if topic.uses_append_time and not header.is_control:
                stamp_append_time(batch, 0, now_ms)
                header = read_header(batch)
            if header.producer_id >= NAMED_IDS:
                header = stamp_name(batch, self._name(route, partition, now_ms))
            offset, last = partition.append_relayed(batch, header, now_ms)
            first = offset if first < 0 else first
        if last >= 0 and not partition.is_committed(last):
            await until_committed(partition, last, timeout_s)
        return first

    def _name(self, route: RelayRoute, partition: Partition, now_ms: int) -> int:
        """By which this log knows the source; it is given one before anything is moved from there."""
        relays = partition.log.producers.relays
        known = relays.get(route.source)
        if known is not None:
            return known.name
        name = relays.free_name()
        batch = position_batch(route.source, NOTHING_MOVED, now_ms, name=name)
        partition.append_relayed(memoryview(batch), read_header(batch), now_ms)
        return name

    def _check_epoch(self, route: RelayRoute, moved: Relayed) -> None:
        """No source has anything of a later epoch than its leader's; one that we have not heard of has to wait."""
        topic, index = self._image.topics_by_id.get(route.source_topic_id), route.source_partition
        states = () if topic is None else topic.partitions[index : index + 1]
        if not states or moved.epoch > states[0].leader_epoch:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"nobody leads {index} under {moved.epoch} yet")

    def _find(self, route: RelayRoute) -> tuple[Topic, Partition]:
        topic, index = self._table.by_id.get(route.target_topic_id), route.target_partition
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.led.get(index)
        if partition is None:
            raise ApiError(topic.missing(index))
        return topic, partition


def not_committed() -> ApiError:
    """The source keeps its records until then: what the target has only appended it may still lose."""
    return ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "what was moved last is not committed yet")


def _moved_by(route: RelayRoute, header: BatchHeader, batch: memoryview) -> Relayed:
    """ApiError: by another route, or by none."""
    if header.producer_id >= RELAY_IDS:
        if names_source(header):
            try:
                source, moved = read_position(header, batch)
            except NewerFormatError as error:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
            if source == route.source:
                return moved
        else:
            moved = relayed_by(header)
            is_retired = route.kind == RelayKind.RETIRED
            if moved.named != is_retired and (moved.named or moved.source == route.source_partition):
                return moved
    raise _no_route(route)


def _no_route(route: RelayRoute) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"nothing of kind {route.kind} is moved from partition {route.source_partition} into "
        f"{route.target_partition}, as far as is known here",
    )
