"""The last position of every relay stays in the target's log, however short its retention.

A replica that is built anew knows what its leader's log holds and nothing else. If the last moved batch were deleted,
it would not know how far the relay is; elected, it would take everything once more. So before such a batch goes, the
leader says again where the relay stands, in a control record (which clients skip), and lets the old one go once that
is committed.
"""

from contextlib import suppress

from penstock.core.errors import ApiError
from penstock.records.batch import read_header
from penstock.records.relay import place_batch
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.storage.producers import RelayPosition
from penstock.storage.retention import RetentionLimits, expired_segments


def oldest_word(topic: Topic, partition: Partition) -> int | None:
    """Where the oldest position of a living relay into this partition stands, of those that are committed.

    One that was said again and is not committed is as good as unsaid: the one before it must stay.
    """
    places = []
    for position in _positions(topic, partition):
        position.is_committed(partition.high_watermark)
        places.append(partition.log.start_offset if position.committed_at is None else position.committed_at)
    return min(places, default=None)


def keep_words(
    topic: Topic, partition: Partition, limits: RetentionLimits, limit_offset: int, now_ms: int
) -> int:
    """How far retention may go now; what it would take beyond that is said again first."""
    oldest = oldest_word(topic, partition)
    if oldest is None or oldest >= limit_offset:
        return limit_offset
    log = partition.log
    wanted = expired_segments(log.summaries(), limits, log.start_offset, limit_offset, now_ms)
    allowed = expired_segments(log.summaries(), limits, log.start_offset, oldest, now_ms)
    if partition.retirement is not None and allowed >= len(log.segments) - 1:
        # What is moved goes at once there: each round would say it once more, to gain what the last round wrote.
        return oldest
    # One that is under way is waited for: where nothing can be committed, each round would say it once more.
    if allowed < wanted and is_said(topic, partition):
        with suppress(ApiError):  # the disk does not take it: then nothing goes yet
            say_again(topic, partition, now_ms)
    return oldest


def is_said(topic: Topic, partition: Partition) -> bool:
    """Whether the last positions are committed, so that none is under way."""
    return all(position.is_committed(partition.high_watermark) for position in _positions(topic, partition))


def say_again(topic: Topic, partition: Partition, now_ms: int) -> int:
    """Write all positions to the end of the log, in a segment of its own age; returns the offset of the last."""
    log = partition.log
    log.roll(now_ms)
    last = log.end_offset - 1
    for source in _sources(topic, partition):
        position = log.producers.relays.get(source)
        if position is not None:
            batch = place_batch(source, position.place, now_ms)
            last = log.append(memoryview(batch), read_header(batch), partition.leader_epoch, now_ms)
    partition.write_held()
    return last


def _positions(topic: Topic, partition: Partition) -> list[RelayPosition]:
    known = partition.log.producers.relays
    return [known[source] for source in _sources(topic, partition) if source in known]


def _sources(topic: Topic, partition: Partition) -> list[int]:
    return [source for source, into in topic.relays.items() if into == partition.index]
