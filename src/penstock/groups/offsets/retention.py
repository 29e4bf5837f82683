"""Which offsets a group no longer needs, and whether it still needs itself.

Of a group without members: all, once it has been without them for the retention. Of a group at work: those of topics
nobody subscribes to any more, once they are that old. Of a group that was never more than its offsets: each by its own
age. A client that asked for a retention of its own (versions up to 4) gets that instead.
"""

from collections.abc import Iterable

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.states import EMPTY, STABLE
from penstock.groups.records.group_value import NO_TIMESTAMP
from penstock.groups.records.offset_value import NO_EXPIRY, CommittedOffset


def expired_offsets(
    group: ClassicGroup,
    offsets: Iterable[tuple[str, int, CommittedOffset]],
    retention_ms: int,
    now_ms: int,
) -> list[tuple[str, int]]:
    """Which of these, of the group's."""
    if not group.is_simple and group.state is not EMPTY:
        if group.state is not STABLE or not group.uses_consumer_protocol or group.subscribed is None:
            return []
        return [
            (topic, partition)
            for topic, partition, value in offsets
            if topic not in group.subscribed and _is_old(value, value.committed_ms, retention_ms, now_ms)
        ]
    idle_since_ms = NO_TIMESTAMP if group.is_simple else group.state_since_ms
    return [
        (topic, partition)
        for topic, partition, value in offsets
        if _is_old(
            value,
            # A commit by hand into an empty group is younger than the group's end: it counts by its own age.
            max(value.committed_ms, idle_since_ms),
            retention_ms,
            now_ms,
        )
    ]


def _is_old(value: CommittedOffset, since_ms: int, retention_ms: int, now_ms: int) -> bool:
    if value.expires_ms != NO_EXPIRY:
        return now_ms >= value.expires_ms
    return now_ms - since_ms >= retention_ms
