"""Retention of one log that is in trouble ends nothing else."""

from collections.abc import Callable

import pytest
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine
from tests.unit.storage.logs import a_batch

from penstock.core.errors import DiskFailedError, DiskFullError
from penstock.storage.deletion import Deletion
from penstock.storage.segment import Segment

LONG_AGO_MS = NOW_MS - 10_000_000
EXPIRES = {"internal.segment.bytes": "100", "retention.ms": "1000"}


def refuse(error: Exception) -> Callable[..., object]:
    def raising(*args: object) -> object:
        raise error

    return raising


async def filled(asked: Asked, name: str) -> None:
    await asked.create(name, EXPIRES)
    for _ in range(4):
        asked.append(name, a_batch((LONG_AGO_MS,)))
    log = asked.partition(name).log
    job = log.sync_job(checkpoint=True)
    job.run()
    log.synced(job)


async def test_files_that_are_gone_are_the_trouble_of_their_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Machine().broker() as asked:
        await filled(asked, "t")
        monkeypatch.setattr(Deletion, "hide", refuse(FileNotFoundError("Partition-0")))
        await asked.broker.upkeep._tend_topic(asked.services.table.by_name[b"t"])
        assert "retention of t-0" in caplog.text


@pytest.mark.parametrize("error", [DiskFullError("no space left"), DiskFailedError("input/output error")])
async def test_a_segment_that_cannot_be_made_is_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Machine().broker() as asked:
        await filled(asked, "t")
        topic, partition = asked.services.table.by_name[b"t"], asked.partition("t")
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "create", refuse(error))
            await asked.broker.upkeep._tend_topic(topic)
        if isinstance(error, DiskFullError):
            assert partition.log.start_offset == 3, "what needs no room goes, and makes some"
        else:
            assert (partition.log.failed, partition.log.start_offset) == (True, 0)


async def test_an_offline_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with Machine().broker() as asked:
        await filled(asked, "t")
        partition = asked.partition("t")
        partition.log.failed = True
        await asked.broker.upkeep._tend_topic(asked.services.table.by_name[b"t"])
        assert partition.log.start_offset == 0
        assert caplog.text == ""
