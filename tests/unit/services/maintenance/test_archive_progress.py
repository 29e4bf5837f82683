"""Which archive progress is believed, and that retention goes no further than that (SPEC A4)."""

import logging
from collections.abc import Mapping

import pytest
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine
from tests.unit.frontends.test_configs import DELETE, SET, TOPIC, alter, change, value
from tests.unit.storage.logs import a_batch, append, opened

from penstock.coordination.tree import ConnectionLostError
from penstock.core.archive_progress import ArchiveProgress, id_text
from penstock.core.error_codes import ErrorCode
from penstock.services.maintenance.archive_progress import _claim, vouched
from penstock.services.maintenance.archive_watch import ArchiveWatch, Held
from penstock.storage.log import Log
from penstock.storage.replicated import truncate
from penstock.storage.segment_row import SegmentRow
from penstock.testing.mem_files import MemFiles
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics

REQUIRED, PROGRESS = "penstock.archive.required", "penstock.archive.progress"
# Every batch is a segment of its own, and old enough to go at once.
EXPIRES = {REQUIRED: "true", "retention.ms": "1000", "internal.segment.bytes": "1"}


def topic_id(asked: Asked, topic: str = "t") -> bytes:
    return asked.services.image.topics[topic].id


async def progress(asked: Asked, offsets: Mapping[int, int], topic: str = "t") -> tuple[int, str | None]:
    text = str(ArchiveProgress(topic_id(asked, topic), offsets))
    return await change(asked, TOPIC, topic, (PROGRESS, SET, text))


def fill(asked: Asked, count: int, topic: str = "t", index: int = 0) -> None:
    for _ in range(count):
        asked.append(topic, a_batch((NOW_MS - 10_000,)), index)
    checkpoint(asked, topic, index)


def checkpoint(asked: Asked, topic: str = "t", index: int = 0) -> None:
    log = asked.partition(topic, index).log
    job = log.sync_job(checkpoint=True)
    job.run()
    log.synced(job)


async def start_after_retention(asked: Asked, topic: str = "t", index: int = 0) -> int:
    partition = asked.partition(topic, index)
    for _ in range(2):  # an active segment is rolled by the first round, and goes with the second
        await asked.broker.upkeep.tend(asked.services.table.by_name[topic.encode()], partition)
        checkpoint(asked, topic, index)
    return partition.log.start_offset


# -- retention ---------------------------------------------------------------------------------------------------


async def test_retention_follows_the_progress_and_keeps_everything_without_one() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        assert await start_after_retention(asked) == 0
        for archived in (1, 3):
            assert (await progress(asked, {0: archived}))[0] == 0
            assert await start_after_retention(asked) == archived
        assert (await progress(asked, {0: 4}))[0] == 0
        assert await start_after_retention(asked) == 4


async def test_retention_waits_for_one_lake() -> None:
    """What another one has, be it a look at the topic, lets nothing go that this one lacks."""
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)

        async def tell(offset: int, lake: str) -> tuple[int, str | None]:
            text = str(ArchiveProgress(topic_id(asked), {0: offset}, lake=lake))
            return await change(asked, TOPIC, "t", (PROGRESS, SET, text))

        assert (await tell(1, ""))[0] == 0  # as versions before told it
        assert (await tell(2, "production"))[0] == 0
        for other in ("look", ""):
            code, why = await tell(4, other)
            assert code == ErrorCode.INVALID_CONFIG
            assert "is not of the lake production" in (why or "")
        assert await start_after_retention(asked) == 2
        assert (await tell(3, "production"))[0] == 0
        assert (await change(asked, TOPIC, "t", (PROGRESS, SET, "")))[0] == 0
        assert (await tell(4, "look"))[0] == 0
        assert await start_after_retention(asked) == 4


async def test_progress_that_goes_back_or_goes_away_keeps_more() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        await progress(asked, {0: 4})
        assert (await progress(asked, {0: 1}))[0] == 0
        assert await start_after_retention(asked) == 1
        assert (await change(asked, TOPIC, "t", (PROGRESS, DELETE, None)))[0] == 0
        assert await start_after_retention(asked) == 1
        assert (await change(asked, TOPIC, "t", (REQUIRED, SET, "false")))[0] == 0
        assert await start_after_retention(asked) == 4


async def test_partitions_wait_each_for_themselves() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES, partitions=2)
        fill(asked, 3)
        fill(asked, 3, index=1)
        await progress(asked, {1: 2})
        assert await start_after_retention(asked) == 0
        assert await start_after_retention(asked, index=1) == 2


async def test_an_archive_that_becomes_required_while_retention_is_at_work_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES | {REQUIRED: "false"})
        fill(asked, 3)
        topic, partition = asked.services.table.by_name[b"t"], asked.partition("t")

        async def while_times_are_loaded() -> None:
            await change(asked, TOPIC, "t", (REQUIRED, SET, "true"))

        monkeypatch.setattr(SegmentRow, "unknown_times", lambda row: [row.segments[0]])
        monkeypatch.setattr(asked.broker.upkeep._jobs, "run", lambda _: while_times_are_loaded())
        await asked.broker.upkeep.tend(topic, partition)
        assert partition.log.start_offset == 0


async def test_delete_records_is_an_order_and_does_not_wait() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        assert await asked.services.deletions.delete_before("t", 0, 2, 1.0) == 2
        assert await start_after_retention(asked) == 2
        assert len(asked.partition("t").log.segments) == 2
        assert (await progress(asked, {0: 1}))[0] == 0  # late, and harmless


# -- what is believed --------------------------------------------------------------------------------------------


async def test_progress_of_another_topic_id_is_refused_with_the_reason() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        await asked.create("other")
        text = f"{id_text(topic_id(asked, 'other'))} 0:0"
        for code, message in (
            await change(asked, TOPIC, "t", (PROGRESS, SET, text)),
            await change(asked, TOPIC, "t", (PROGRESS, SET, text), only=True),
            await alter(asked, TOPIC, "t", (PROGRESS, text)),
        ):
            assert code == ErrorCode.INVALID_CONFIG
            assert message is not None
            assert id_text(topic_id(asked)) in message
            assert "deleted and created again" in message
        assert await value(asked, TOPIC, "t", PROGRESS) == ("", 5)


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ({0: 3}, "readers can see it only up to 2"),
        ({0: 2, 7: 0}, "names partition 7, but 't' has 1 partition"),
    ],
)
async def test_progress_that_cannot_be_true_is_refused(offsets: dict[int, int], reason: str) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 2)
        code, message = await progress(asked, offsets)
        assert code == ErrorCode.INVALID_CONFIG
        assert reason in (message or "")


async def test_malformed_progress_is_refused_with_the_reason() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        code, message = await change(asked, TOPIC, "t", (PROGRESS, SET, f"{id_text(topic_id(asked))} 0=1"))
        assert code == ErrorCode.INVALID_CONFIG
        assert "'0=1' is not <partition>:<next offset>" in (message or "")


async def test_an_offline_partition_takes_no_new_progress_and_does_not_hinder_the_others() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES, partitions=2)
        fill(asked, 2)
        fill(asked, 2, index=1)
        await progress(asked, {0: 1, 1: 1})
        asked.partition("t").log.failed = True
        assert (await progress(asked, {0: 2, 1: 2}))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await progress(asked, {0: 1, 1: 2}))[0] == 0


@pytest.mark.parametrize("only", [False, True])
async def test_a_new_topic_cannot_have_progress(only: bool) -> None:
    async with Machine().broker() as asked:
        topic = create_topics.CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[create_topics.CreatableTopicConfig(name=PROGRESS, value=f"{id_text(b'0' * 16)} 0:0")],
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=only)
        (answer,) = (await asked.ask(ApiKey.CREATE_TOPICS, request, 7)).topics
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "nothing archived yet" in answer.error_message


# -- logs that lose their end ------------------------------------------------------------------------------------


async def test_progress_survives_a_restart() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        await progress(asked, {0: 2})
    async with machine.broker() as asked:
        assert await start_after_retention(asked) == 2


@pytest.mark.parametrize(
    ("says_epoch", "believed", "stored"),
    [(True, 2, "0:2:0"), (False, 0, "0:0")],  # without it, nobody knows whether that was this log at all
)
async def test_progress_goes_back_with_a_log_that_lost_its_end(
    says_epoch: bool, believed: int, stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        epoch = asked.partition("t").leader_epoch
        claim = ArchiveProgress(topic_id(asked), {0: 4}, {0: epoch} if says_epoch else {})
        assert (await change(asked, TOPIC, "t", (PROGRESS, SET, str(claim))))[0] == 0
        truncate(asked.partition("t").log, 2)
    async with machine.broker() as asked:
        assert "lost its end" in caplog.text
        fill(asked, 3)  # other records, at offsets that the archive says it has
        assert await start_after_retention(asked) == believed
        assert await value(asked, TOPIC, "t", PROGRESS) == (f"{id_text(topic_id(asked))} {stored}", 1)


async def test_progress_goes_back_when_an_offline_log_comes_back_shorter() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        partition = asked.partition("t")
        claim = ArchiveProgress(topic_id(asked), {0: 4}, {0: partition.leader_epoch})
        assert (await change(asked, TOPIC, "t", (PROGRESS, SET, str(claim))))[0] == 0
        truncate(partition.log, 2)
        partition.log.failed = True
        await reopen(asked)
        assert not partition.log.failed
        fill(asked, 3)
        assert await start_after_retention(asked) == 2


async def test_a_shortened_log_does_not_serve_until_its_progress_is_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        await progress(asked, {0: 4})
        partition = asked.partition("t")
        truncate(partition.log, 2)
        partition.log.failed = True
        with monkeypatch.context() as patch:
            patch.setattr(asked.broker.metadata, "alter_topic_configs", _refuse)
            await reopen(asked)
            assert partition.log.failed
        await reopen(asked)
        assert not partition.log.failed


async def reopen(asked: Asked) -> None:
    """What the upkeep does, without a new leader epoch."""
    hosting = asked.broker.hosting
    await hosting.reopen_failed(hosting.failed_logs())
    await hosting.reconcile()


async def _refuse(*_: object) -> None:
    raise ConnectionLostError("no metadata now")


# -- the alarm ---------------------------------------------------------------------------------------------------


def test_each_crossing_of_the_limit_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.services.maintenance.archive_watch")
    watch = ArchiveWatch()
    for size_bytes in (100, 101, 500):
        watch.report("t", size_bytes, 100)
    assert watch.topics == {"t": Held(500, alarm=True)}
    assert watch.alarms() == ["t"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    watch.report("t", 100, 100)
    assert watch.alarms() == []
    watch.report("t", 101, 100)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    watch.report("t", 10**15, -1)
    assert watch.alarms() == []
    watch.keep_only([])
    assert watch.topics == {}


# -- which log was archived ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "epoch", "believed"),
    [
        (4, 1, 4),
        (6, 3, 6),
        (6, None, 6),
        (9, None, 1),  # it has no more, and whose that was nobody knows: somebody may have mistyped it
        (6, 1, 4),  # of that epoch it has less: the rest was lost, and others were written
        (9, 3, 7),
        (6, 2, 1),  # of an epoch that left nothing here: all that is still there is in doubt
        (6, 5, 1),
        (1, 0, 1),  # what is gone from the log is beyond doubt
    ],
)
def test_a_leader_vouches_for_what_its_own_log_has(offset: int, epoch: int | None, believed: int) -> None:
    log = opened(MemFiles()).log
    for written in (1, 1, 1, 1, 3, 3, 3):
        append(log, a_batch(), epoch=written)
    log.advance_start(1)
    assert vouched(log, offset, epoch) == believed


def test_what_was_lowered_is_held_against_the_next_leader_by_its_epoch() -> None:
    """Several unclean elections: the second leader has less, the third parted from the archived log before that."""
    archived = ArchiveProgress(bytes(16), {0: 6}, {0: 1})
    second = written_under(1, 1, 1, 1)
    lowered = archived.lowered({0: _claim(second, 0, archived)})
    assert (lowered.next_offsets[0], lowered.epochs[0]) == (4, 1)
    third = written_under(1, 1, 2, 2, 2, 2, 2)
    assert vouched(third, lowered.next_offsets[0], lowered.epochs[0]) == 2


def test_what_was_lowered_to_the_start_of_a_log_is_not_believed_by_one_that_begins_earlier() -> None:
    """No epoch tells of the records before a log's start, so nothing may be said of them either."""
    archived = ArchiveProgress(bytes(16), {0: 6}, {0: 5})
    second = written_under(1, 1, 1, 3, 3)
    second.advance_start(3)
    lowered = archived.lowered({0: _claim(second, 0, archived)})
    third = written_under(1, 2, 2, 2, 4)
    assert vouched(third, lowered.next_offsets[0], lowered.epochs.get(0)) == 0
    # Where nothing has to be lowered, what is said stays.
    same = ArchiveProgress(bytes(16), {0: 2})
    assert same.lowered({0: _claim(second, 0, same)}) == same


def written_under(*epochs: int) -> Log:
    log = opened(MemFiles()).log
    for epoch in epochs:
        append(log, a_batch(), epoch=epoch)
    return log


async def test_what_was_archived_of_another_history_counts_no_more() -> None:
    """As after an unclean election: the same offsets, written under another leader epoch."""
    async with Machine().broker() as asked:
        await asked.create("t", EXPIRES)
        fill(asked, 4)
        partition = asked.partition("t")
        claim = ArchiveProgress(topic_id(asked), {0: 4}, {0: partition.leader_epoch})
        assert (await change(asked, TOPIC, "t", (PROGRESS, SET, str(claim))))[0] == 0
        truncate(partition.log, 2)
        partition.leader_epoch += 1
        partition.limits.move(partition.log.end())
        fill(asked, 2)
        assert await start_after_retention(asked) == 2
        again = await change(asked, TOPIC, "t", (PROGRESS, SET, str(ArchiveProgress(claim.topic_id, {0: 1}))))
        assert again[0] == 0
        code, message = await change(asked, TOPIC, "t", (PROGRESS, SET, str(claim)))
        assert code == ErrorCode.INVALID_CONFIG
        assert "leader epoch" in (message or "")
