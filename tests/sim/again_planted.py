"""Bugs of work on files in threads, to be planted into a broker whose topic is deleted and made again."""

import pytest

from penstock.core.errors import StorageError
from penstock.replication.table import Topic
from penstock.services.hosting.removal import Removal
from penstock.services.maintenance.upkeep import Upkeep
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.names import DirectoryNames


def deletes_under_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic's directory goes while syncs, start marks and retention still work on it."""

    async def hasty(removal: Removal, topic: Topic) -> None:
        for partition in topic.partitions.values():
            partition.topic_deleted()

    monkeypatch.setattr(Removal, "_end_all", hasty)


def trusts_any_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and recovery goes by a point that is another topic's."""
    deletes_under_running_work(monkeypatch)
    honest = DirectoryNames.recovery_point

    def trusting(names: DirectoryNames, owner: str) -> RecoveryPoint | None:
        return honest(names, "")

    monkeypatch.setattr(DirectoryNames, "recovery_point", trusting)


def retention_ends_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and retention expects nothing but a disk that fails."""
    deletes_under_running_work(monkeypatch)

    async def trusting(upkeep: Upkeep, topic: Topic) -> None:
        for partition in list(topic.partitions.values()):
            try:
                await upkeep.tend(topic, partition)
            except StorageError:
                continue

    monkeypatch.setattr(Upkeep, "_tend_topic", trusting)
