"""Taking deleted topics out of service: the loop does none of the slow work, and one bad disk spoils nothing else."""

import asyncio
import threading
import weakref

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.core.errors import DiskFailedError


async def test_the_files_of_a_deleted_topic_are_closed_in_a_thread() -> None:
    closed_in: list[int] = []
    async with Machine().broker() as asked:
        for name in ("a", "b"):
            await asked.create(name, partitions=2)
            for index in range(2):
                log = asked.partition(name, index).log
                weakref.finalize(log, lambda: closed_in.append(threading.get_ident()))
                del log
            await asked.broker.metadata.delete_topic(name)
        await asked.broker.hosting.reconcile()
        async with asyncio.timeout(60):
            while len(closed_in) < 4:  # noqa: ASYNC110 - threads cannot set an asyncio.Event
                await asyncio.sleep(0.001)
        assert threading.get_ident() not in closed_in


async def test_files_that_cannot_be_removed_do_not_keep_new_topics_from_opening(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Machine().broker() as asked:
        await asked.create("old")

        def refuse(topic: str, topic_id: bytes) -> None:
            raise DiskFailedError("the disk is gone")

        monkeypatch.setattr(asked.broker.data_dir, "discard_topic", refuse)
        await asked.broker.metadata.delete_topic("old")
        await asked.create("new")
        assert asked.partition("new").high_watermark == 0
        assert "old could not be removed" in caplog.text
