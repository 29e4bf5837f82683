"""The last position of every relay stays in the target's log, however short its retention.

A replica that is built anew knows what its leader's log holds and nothing else. If the last moved batch were deleted,
it would not know how far the relay is; elected, it would take everything once more. So before such a batch goes, the
leader says again where the relay stands, in a control record (which clients skip), and lets the old one go once that
is committed.
"""

from collections.abc import Collection
from contextlib import suppress

from penstock.core.errors import ApiError
from penstock.records.batch import read_header
from penstock.records.relay import position_batch
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RelayRoute
from penstock.storage.relay_positions import RelayPosition
from penstock.storage.retention import RetentionLimits, expired_segments

Routes = Collection[RelayRoute]  # those that end in the partition


def oldest_position(routes: Routes, partition: Partition) -> int | None:
    """Where the oldest position of a living relay into this partition stands, of those that are committed.

    One that was said again and is not committed is as good as unsaid: the one before it must stay.
    """
    places = []
    for position in _positions(routes, partition):
        position.is_committed(partition.high_watermark)
        places.append(partition.log.start_offset if position.committed_at is None else position.committed_at)
    return min(places, default=None)


def keep_positions(
    routes: Routes, partition: Partition, limits: RetentionLimits, limit_offset: int, now_ms: int
) -> int:
    """How far retention may go now; what it would take beyond that is said again first."""
    oldest = oldest_position(routes, partition)
    if oldest is None or oldest >= limit_offset:
        return limit_offset
    log = partition.log
    wanted = expired_segments(log.summaries(), limits, log.start_offset, limit_offset, now_ms)
    allowed = expired_segments(log.summaries(), limits, log.start_offset, oldest, now_ms)
    if partition.retirement is not None and allowed >= len(log.segments) - 1:
        # What is moved goes at once there: each round would say it once more, to gain what the last round wrote.
        return oldest
    # One that is under way is waited for: where nothing can be committed, each round would say it once more.
    if allowed < wanted and are_committed(routes, partition):
        with suppress(ApiError):  # the disk does not take it: then nothing goes yet
            repeat_positions(routes, partition, now_ms)
    return oldest


def are_committed(routes: Routes, partition: Partition) -> bool:
    """Whether the last positions are committed, so that none is under way."""
    return all(position.is_committed(partition.high_watermark) for position in _positions(routes, partition))


def repeat_positions(routes: Routes, partition: Partition, now_ms: int) -> int:
    """Write all positions to the end of the log, in a segment of its own age; returns the offset of the last."""
    log = partition.log
    log.roll(now_ms)
    last = log.end_offset - 1
    for route in routes:
        position = log.producers.relays.get(route.source)
        if position is not None:
            name = max(position.name, 0)
            batch = position_batch(route.source, position.place, now_ms, name=name)
            last = log.append(memoryview(batch), read_header(batch), partition.leader_epoch, now_ms)
    partition.write_held()
    return last


def _positions(routes: Routes, partition: Partition) -> list[RelayPosition]:
    known = partition.log.producers.relays
    found = (known.get(route.source) for route in routes)
    return [position for position in found if position is not None]
