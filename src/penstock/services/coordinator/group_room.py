"""Whether a broker takes more groups, members and offsets: what is there goes on, what would be new is refused.

Apache Kafka bounds none of them but the members of a group; there, offsets that nobody uses go after a week, as here.
"""

import logging

from penstock.core.limits import GROUPS_BYTES_MAX, GROUPS_RESERVE_BYTES
from penstock.services.coordinator.group_kind import GroupCoordinator

logger = logging.getLogger(__name__)

# How often it is said that groups are turned away.
_TOLD_EVERY_SECONDS = 60.0


class GroupRoom:
    def __init__(self, runtime: GroupCoordinator) -> None:
        self._runtime = runtime
        self._told_at = float("-inf")

    def has_for_group(self, now: float) -> bool:
        """For one that is not there yet."""
        return self._told(self._runtime.size_bytes <= GROUPS_BYTES_MAX, "groups", now)

    def has_for_member(self, now: float) -> bool:
        """For a new one of a group that is there."""
        return self._told(self.left_bytes > 0, "members", now)

    def has_for_offset(self, size_bytes: int, left_bytes: int, now: float) -> bool:
        """For so much that a group which is there has not committed before, of `left_bytes`."""
        return self._told(size_bytes <= left_bytes, "offsets", now)

    @property
    def left_bytes(self) -> int:
        """What those that are there may take. It asks all shards: to be asked once for many offsets."""
        return GROUPS_BYTES_MAX + GROUPS_RESERVE_BYTES - self._runtime.size_bytes

    def _told(self, has_room: bool, what: str, now: float) -> bool:
        """`has_room`, and once in a while a line when there is none."""
        if not has_room and now >= self._told_at + _TOLD_EVERY_SECONDS:
            self._told_at = now
            logger.error(
                "groups take %d MB of memory, and %d MB are meant for them: %s that are not there yet are refused, "
                "until groups are deleted or expire (offsets.retention.minutes)",
                self._runtime.size_bytes >> 20,
                GROUPS_BYTES_MAX >> 20,
                what,
            )
        return has_room
