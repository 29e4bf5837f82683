"""Retention of one log that is in trouble ends nothing else."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine
from tests.unit.storage.logs import a_batch

from penstock.core.errors import ApiError, DiskFailedError, DiskFullError
from penstock.core.lease import Work
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.core.turns import Turn
from penstock.records.batch import read_header
from penstock.replication.partition import Partition
from penstock.services.maintenance import upkeep
from penstock.services.topics.deletions import TopicReference
from penstock.storage.deletion import Deletion
from penstock.storage.segment import Segment

LONG_AGO_MS = NOW_MS - 10_000_000
EXPIRES = {"internal.segment.bytes": "100", "retention.ms": "1000", "file.delete.delay.ms": "0"}


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


@pytest.mark.parametrize("operation", ["rename", "sync_dir"])
async def test_segments_that_cannot_go_are_tried_again_before_later_ones(operation: str) -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await filled(asked, "t")
        topic, log, upkeep = asked.services.table.by_name[b"t"], asked.partition("t").log, asked.broker.upkeep
        checkpoint = await asked.partition("t").lease.get(Work.CHECKPOINT)
        assert checkpoint is not None
        with checkpoint:  # no other renames a file meanwhile, and takes the fault for itself
            machine.files.fail_next(operation, "*Partition-0*")
            await upkeep._tend_topic(topic)
        assert (log.start_offset, upkeep.deleted_bytes) == (3, 0)
        asked.append("t", a_batch((NOW_MS,)))
        await upkeep._tend_topic(topic)
        assert upkeep.deleted_bytes > 0
        async with asyncio.timeout(5):
            while len([name for name in machine.files.list_dir(log.directory) if ".log" in name]) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0)


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


@pytest.mark.parametrize(("spent_ms", "at_once"), [(0, 40), (0.26, 8), (1.1, 2), (5, 1)])
async def test_others_get_their_turn_while_retention_goes_through_many_partitions(
    spent_ms: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that it takes: where all is old, each of them begins a file."""
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES, partitions=40)
        upkeep, loop = asked.broker.upkeep, asyncio.get_running_loop()
        tended, seen = 0, [0]

        async def tend(*_: object) -> int:
            nonlocal tended
            tended += 1
            return 0

        def turn() -> None:
            seen.append(tended)
            if tended < 40:
                loop.call_soon(turn)

        monkeypatch.setattr(upkeep, "tend", tend)
        monkeypatch.setattr(upkeep, "_turn", Turn(lambda: tended * spent_ms / 1000))
        loop.call_soon(turn)
        await upkeep._tend_topic(asked.services.table.by_name[b"t"])
        assert max(after - before for before, after in pairwise([*seen, tended])) == at_once


async def test_others_get_their_turn_while_old_bytes_are_looked_for_in_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 3 * TURN_ITEMS_MAX
    async with Machine().broker() as asked:
        await asked.create("t", {"flush.ms": "0", "penstock.ack.after": "written"}, partitions=count)
        upkeep, loop = asked.broker.upkeep, asyncio.get_running_loop()
        flush_if_old = upkeep._flush_if_old
        looked, seen = 0, [0]
        flushed: list[Partition] = []

        def look(partition: Partition, known: Any, flush_ms: int) -> None:
            nonlocal looked
            looked += 1
            flush_if_old(partition, known, flush_ms)

        def turn() -> None:
            seen.append(looked)
            if looked < count:
                loop.call_soon(turn)

        monkeypatch.setattr(upkeep, "_flush_if_old", look)
        monkeypatch.setattr(upkeep._group_commit, "request_unhurried", flushed.append)
        asked.append("t", a_batch((NOW_MS,)))
        loop.call_soon(turn)
        await upkeep.flush_old()
        assert max(after - before for before, after in pairwise([*seen, looked])) == TURN_ITEMS_MAX
        assert flushed == [], "it was not known to wait before"
        await upkeep.flush_old()
        assert flushed == [asked.partition("t")]
        await asked.services.topics.delete([TopicReference("t")], timeout_ms=1000)
        await upkeep.flush_old()
        assert not upkeep._unsynced, "nothing is kept of a topic that is gone"


async def test_an_offline_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with Machine().broker() as asked:
        await filled(asked, "t")
        partition = asked.partition("t")
        partition.log.failed = True
        await asked.broker.upkeep._tend_topic(asked.services.table.by_name[b"t"])
        assert partition.log.start_offset == 0
        assert caplog.text == ""


async def test_a_read_that_fails_while_logs_are_brought_back_ends_nothing_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_OFFLINE_RETRY_SECONDS", 0.001)
    async with Machine().broker() as asked:
        outcomes, done = [DiskFailedError("input/output error")], asyncio.Event()

        async def reopen() -> None:
            if outcomes:
                raise outcomes.pop()
            done.set()

        await filled(asked, "t")
        monkeypatch.setattr(asked.broker.upkeep, "_reopen", reopen)
        asked.partition("t").log.failed = True
        async with asyncio.timeout(5):
            await done.wait()
        assert not asked.broker.broken.is_set()


async def test_files_are_synced_at_once_when_many_of_those_that_may_be_open_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when somebody looks how old it is: until then others could not be written to."""
    monkeypatch.setattr(upkeep, "_FLUSH_EVERY_SECONDS", 1000)
    machine = Machine()
    async with machine.broker() as asked:
        names = [f"t{number}" for number in range(12)]
        for name in names:
            await asked.create(name, configs={"penstock.ack.after": "written"})
        machine.files.limit_files(8)
        for name in names:
            batch = a_batch()
            asked.partition(name).append(memoryview(batch), read_header(batch), NOW_MS)
            while machine.files.descriptors.pressed:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_files_that_a_full_disk_took_nothing_into_do_not_stay_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "_FLUSH_EVERY_SECONDS", 0.001)
    machine = Machine()
    async with machine.broker() as asked:
        names = [f"t{number}" for number in range(4)]
        for name in names:
            await asked.create(name)
        machine.files.limit_files(4)
        machine.files.fill_up(0)
        for name in names:
            batch = a_batch()
            with pytest.raises(ApiError):
                asked.partition(name).append(memoryview(batch), read_header(batch), NOW_MS)
        descriptors = machine.files.descriptors
        assert descriptors.unsynced == 4
        async with asyncio.timeout(5):
            while descriptors.unsynced > 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert not any(asked.partition(name).log.failed for name in names)
