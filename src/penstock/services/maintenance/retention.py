"""How much of a replica's log its topic's retention may take: settings, the archive, and what is still to be moved."""

from penstock.replication.partition import Partition
from penstock.replication.retirement import Retirement
from penstock.replication.table import Topic
from penstock.services.maintenance.archive_progress import archived_end
from penstock.storage.retention import UNLIMITED, RetentionLimits

_AT_ONCE = 0


def retention_of(topic: Topic, partition: Partition) -> tuple[RetentionLimits, int]:
    """The limits, and the offset that nothing may be taken behind."""
    retirement = partition.retirement
    if not partition.is_leader or not topic.config.deletes:
        # Only the leader moves the start of the log; a follower obeys it. What DeleteRecords gave up still goes.
        limits = RetentionLimits(UNLIMITED, UNLIMITED)
    elif retirement is None:
        limits = _limits(topic, partition)
    else:
        limits = _limits_of_inlet(topic, partition, retirement)
    # What an open transaction may still become, readers have not seen yet.
    committed = partition.limits.last_stable.offset
    if retirement is None:
        return limits, committed
    if not partition.is_leader:
        # It is told of what readers may see, and no more: what the leader deleted behind that was committed, too.
        return limits, max(committed, partition.log.start_offset)
    # Unless the target has it.
    return limits, min(committed, max(retirement.limit, retirement.moved))


def _limits(topic: Topic, partition: Partition) -> RetentionLimits:
    config = topic.config
    archived = archived_end(topic, partition) if config.archive_required else None
    return RetentionLimits(config.retention_ms, config.retention_bytes, archived)


def _limits_of_inlet(topic: Topic, partition: Partition, retirement: Retirement) -> RetentionLimits:
    log = partition.log
    if log.start_offset >= retirement.limit:
        return RetentionLimits(_AT_ONCE)  # readers have nothing left, and the target has what was moved
    limits = _limits(topic, partition)
    if limits.archived_offset is not None and limits.archived_offset >= retirement.limit:
        limits = limits._replace(archived_offset=None)
    if limits.retention_bytes >= 0:
        # What readers cannot see must not push out what they can.
        hidden = sum(segment.size for segment in log.segments if segment.base_offset >= retirement.limit)
        limits = limits._replace(retention_bytes=limits.retention_bytes + hidden)
    return limits
