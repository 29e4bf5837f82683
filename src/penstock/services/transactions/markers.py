"""Who writes the marker that tells one partition how a transaction ended, where the partition is led."""

from typing import Protocol

from penstock.core.error_codes import ErrorCode
from penstock.replication.transactions import MarkerToWrite


class MarkerWriter(Protocol):
    async def write(self, topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        """Into a partition that is led here; returns once it is committed, or cannot be."""
