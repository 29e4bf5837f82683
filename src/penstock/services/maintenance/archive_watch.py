"""How much retention keeps for archives that are behind, topic by topic, and when that becomes an alarm."""

import logging
from collections.abc import Collection
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Held(NamedTuple):
    size_bytes: int
    alarm: bool


class ArchiveWatch:
    """As retention's last round found it; read from other threads, which copy before they walk."""

    def __init__(self) -> None:
        self.topics: dict[str, Held] = {}

    def report(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        """`limit_bytes` below zero: no alarm. Each crossing is told once."""
        alarm = 0 <= limit_bytes < size_bytes
        before = self.topics.get(topic)
        self.topics[topic] = Held(size_bytes, alarm)
        if alarm and not (before and before.alarm):
            logger.warning(
                "%s: retention keeps %d bytes for the archive, more than penstock.archive.held.bytes.alarm (%d): "
                "run the archive, or let them go with penstock.archive.required=false",
                topic,
                size_bytes,
                limit_bytes,
            )
        elif before and before.alarm and not alarm:
            logger.info(
                "%s: retention keeps %d bytes for the archive, below the alarm again", topic, size_bytes
            )

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget topics that are gone, or no longer wait for an archive."""
        for topic in [known for known in self.topics if known not in topics]:
            del self.topics[topic]

    def alarms(self) -> list[str]:
        return sorted(topic for topic, held in list(self.topics.items()) if held.alarm)
