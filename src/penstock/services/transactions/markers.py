"""The marker that tells one partition how a transaction ended, and who writes it where the partition is led."""

from typing import NamedTuple, Protocol

from penstock.core.error_codes import ErrorCode


class MarkerToWrite(NamedTuple):
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int  # the leader epoch of the partition of `__transaction_state`
    transaction_version: int  # in which the leader judges the producer epoch


class MarkerWriter(Protocol):
    async def write(self, topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        """Into a partition that is led here; returns once it is committed, or cannot be."""


class NoMarkerWriter:
    """Until partition leaders can write markers: transactions stay prepared."""

    async def write(self, _topic: str, _partition: int, _marker: MarkerToWrite) -> ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
