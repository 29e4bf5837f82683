"""The settings a log lives by, as the configuration of its topic gives them."""

from typing import Protocol


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
