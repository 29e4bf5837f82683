"""Bugs of work on files in threads, to be planted into a broker whose topic is deleted and made again."""

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.replication.table import Topic
from penstock.services.hosting.removal import Removal
from penstock.services.maintenance.upkeep import Upkeep
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.log import Log
from penstock.storage.names import DirectoryNames


def deletes_under_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic's directory goes while syncs, start marks and retention still work on it."""

    async def hasty(removal: Removal, topic: Topic) -> None:
        pass

    monkeypatch.setattr(Removal, "_end_all", hasty)


def leads_what_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic's partitions stay led for whoever has them at hand, and their logs take what comes."""

    def only_tells(removal: Removal, topic: Topic) -> None:
        for partition in topic.partitions.values():
            partition.turn_away(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")

    close = Log.close

    def open_to_all(log: Log, *, deleted: bool = False) -> None:
        failed = log.failed
        close(log, deleted=deleted)
        log.failed = failed

    monkeypatch.setattr(Removal, "_stand_back", only_tells)
    monkeypatch.setattr(Log, "close", open_to_all)


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
