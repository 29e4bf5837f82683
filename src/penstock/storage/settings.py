"""The settings a log lives by, as the configuration of its topic gives them."""

from pathlib import Path
from typing import Protocol

from penstock.core.crc32c import crc32c

_INDEX_ENTRY_BYTES = 8


class LogSettings(Protocol):
    """What a log needs to know of its topic's configuration."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def compacts(self) -> bool: ...


def index_entries_max(settings: LogSettings) -> int:
    return max(settings.segment_index_bytes // _INDEX_ENTRY_BYTES, 1)


def roll_after_ms(settings: LogSettings, stem: Path) -> int:
    """Spread over partitions and segments, without a random source: the same log rolls at the same times."""
    span = min(settings.segment_jitter_ms, settings.segment_ms)
    return settings.segment_ms - (crc32c(str(stem).encode()) % span if span > 0 else 0)
