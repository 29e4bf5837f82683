"""A sync that ends badly ends for everybody who waits for it, and is the trouble of its own log only."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError, StorageError, TooManyFilesError
from penstock.core.lease import Work
from penstock.core.limits import SYNCS_UNHURRIED_MAX
from penstock.records.batch import read_header
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.services.acknowledging import until_committed
from penstock.storage.checkpoint import SyncJob
from penstock.storage.log import Log
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop


def written_to(group_commit: GroupCommit) -> Partition:
    """A partition with one batch that waits for its sync."""
    partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 0, group_commit, sync_before_ack=True)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    return partition


def unsynced(group_commit: GroupCommit) -> Partition:
    """A partition with one batch that nobody waits for."""
    partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 0, group_commit, sync_before_ack=False)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    return partition


def test_nobody_waits_for_ever_for_a_sync_whose_directory_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(job: SyncJob) -> None:
        raise FileNotFoundError("Partition-0")

    monkeypatch.setattr(SyncJob, "run", gone)
    failures: list[str] = []
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, failures.append)
            partition = written_to(group_commit)
            await group_commit.covered(partition)
            assert await partition.lease.get(Work.CUT)
            await group_commit.idle()
            assert partition.log.failed

        loop.run_until_complete(loop.spawn("broker", story()))
    assert failures == [], "the disk is well: other logs go on"


def test_nobody_waits_for_ever_for_a_sync_that_could_not_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def unforeseen(log: Log, *, checkpoint: bool = False) -> SyncJob:
        raise ValueError("a bug")

    monkeypatch.setattr(Log, "sync_job", unforeseen)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)
            waiting = loop.spawn("producer", until_committed(partition, 0, 5))
            await group_commit.covered(partition)
            with pytest.raises(ApiError, match="a bug"):
                await waiting
            assert await partition.lease.get(Work.CUT)
            await group_commit.idle()
            assert partition.log.failed

        loop.run_until_complete(loop.spawn("broker", story()))


def test_of_a_log_whose_lease_has_ended_nothing_is_synced_and_nobody_waits() -> None:
    with SimLoop(1) as loop:

        async def story() -> None:
            files = MemFiles()
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = Partition("t", bytes(16), 0, opened(files).log, 0, group_commit, sync_before_ack=True)
            batch = a_batch()
            partition.append(memoryview(batch), read_header(batch), NOW_MS)
            partition.lease.end()
            await partition.lease.free()
            await group_commit.covered(partition)
            assert partition.log.synced_end.offset == 0

        loop.run_until_complete(loop.spawn("broker", story()))


def test_a_sync_without_a_descriptor_is_done_again_and_not_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    syncs: list[float] = []
    honest = SyncJob.run

    def run(job: SyncJob) -> None:
        syncs.append(loop.time())
        if loop.time() < 1:
            raise TooManyFilesError("none left")
        honest(job)

    monkeypatch.setattr(SyncJob, "run", run)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)
            await asyncio.gather(group_commit.covered(partition), partition.lease.get(Work.CUT))
            assert partition.log.synced_end.offset == 1

        loop.run_until_complete(loop.spawn("broker", story()))
    assert 5 <= len(syncs) <= 12


def test_at_a_shutdown_no_sync_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of the shutdown writes the same files."""
    syncs: list[SyncJob] = []

    def run(job: SyncJob) -> None:
        syncs.append(job)
        raise TooManyFilesError("none left")

    monkeypatch.setattr(SyncJob, "run", run)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)
            await asyncio.sleep(0.001)
            await group_commit.idle()
            await asyncio.sleep(1)
            assert len(syncs) == 1
            assert partition.log.unsynced_bytes

        loop.run_until_complete(loop.spawn("broker", story()))


def test_nor_for_what_could_not_be_told_and_was_synced_since(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[SyncJob] = []
    honest = SyncJob.run

    def run(job: SyncJob) -> None:
        syncs.append(job)
        honest(job)

    monkeypatch.setattr(SyncJob, "run", run)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)
            with monkeypatch.context() as short:
                short.setattr(Partition, "synced", refuses)
                await asyncio.sleep(0.001)
            group_commit.request(partition)
            await asyncio.sleep(0.001)
            await group_commit.idle()
            await asyncio.sleep(1)
            assert len(syncs) == 2

        loop.run_until_complete(loop.spawn("broker", story()))


def refuses(partition: Partition, job: SyncJob) -> None:
    raise TooManyFilesError("none left")


def test_a_sync_that_is_asked_for_while_the_log_is_cut_follows() -> None:
    """By then this broker may lead: a producer waits for it, and nobody would ask again."""
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = Partition(
                "t", bytes(16), 0, opened(MemFiles()).log, 0, group_commit, sync_before_ack=True
            )
            hold = await partition.lease.get(Work.CUT)
            assert hold is not None
            for _ in range(2):
                batch = a_batch()
                partition.append(memoryview(batch), read_header(batch), NOW_MS)
            await asyncio.sleep(1)
            assert partition.high_watermark == 0
            hold.release()
            await asyncio.sleep(1)
            assert partition.high_watermark == 2
            assert not partition.lease.is_syncing

        loop.run_until_complete(loop.spawn("broker", story()))


@pytest.mark.parametrize("rolled", [True, False])
def test_compaction_waits_for_a_checkpoint_and_not_for_a_mere_sync(
    rolled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = SyncJob.run
    may_compact: list[bool] = []
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)

            def run(job: SyncJob) -> None:
                may_compact.append(not partition.lease.is_held(Work.CHECKPOINT))
                honest(job)

            monkeypatch.setattr(SyncJob, "run", run)
            if rolled:
                partition.log.roll(NOW_MS)  # which asks for a checkpoint
            await group_commit.covered(partition)

        loop.run_until_complete(loop.spawn("broker", story()))
    assert may_compact == [not rolled]


class Acked:
    def __init__(self) -> None:
        self.said: list[str] = []

    def committed(self) -> None:
        self.said.append("committed")

    def failed(self, code: ErrorCode, message: str) -> None:
        self.said.append(code.name)


@pytest.mark.parametrize(
    ("error", "said"),
    [(TooManyFilesError("none left"), "committed"), (DiskFailedError("broken"), "KAFKA_STORAGE_ERROR")],
)
def test_what_is_committed_and_cannot_be_found_just_now_is_tried_again(
    error: StorageError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may have a limit whose place has to be read: with no descriptor for it, nobody was ever told."""
    honest, errors = Partition.synced, [error]

    def synced(partition: Partition, job: SyncJob) -> None:
        if errors:
            raise errors.pop()
        honest(partition, job)

    monkeypatch.setattr(Partition, "synced", synced)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = written_to(group_commit)
            waiter = Acked()
            partition.limits.wait_for_commit(0, waiter)
            await group_commit.covered(partition)
            await asyncio.sleep(1)
            assert waiter.said == [said]
            await group_commit.idle()

        loop.run_until_complete(loop.spawn("broker", story()))


def test_whoever_waits_for_a_sync_hears_of_its_end_whatever_is_raised_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def synced(partition: Partition, job: SyncJob) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Partition, "synced", synced)

    async def story() -> None:
        told: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        group_commit = GroupCommit(loop, None, pytest.fail)
        partition = written_to(group_commit)
        group_commit.request(partition)
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await group_commit.idle()
        assert [type(error) for error in told] == [RuntimeError]

    asyncio.run(story())


def test_what_nobody_waits_for_leaves_threads_to_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimLoop(1) as loop:
        begun: list[asyncio.Future[None]] = []

        def in_thread(_executor: object, work: Callable[[], None]) -> asyncio.Future[None]:
            begun.append(loop.create_future())
            begun[-1].add_done_callback(lambda _: work())
            return begun[-1]

        monkeypatch.setattr(loop, "run_in_executor", in_thread)

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            many = [unsynced(group_commit) for _ in range(3 * SYNCS_UNHURRIED_MAX)]
            for partition in many:
                group_commit.request_unhurried(partition)
            many[0].lease.end()  # deleted meanwhile: it takes nobody's place
            await asyncio.sleep(0.001)
            assert group_commit.running == SYNCS_UNHURRIED_MAX
            group_commit.request(many[-1])
            await asyncio.sleep(0.001)
            assert group_commit.running == SYNCS_UNHURRIED_MAX + 1, "who waits goes first"
            for future in begun:  # grows meanwhile
                future.set_result(None)
                await asyncio.sleep(0.001)
                assert group_commit.running <= SYNCS_UNHURRIED_MAX + 1
            assert [partition.log.synced_end.offset for partition in many] == [0] + [1] * (len(many) - 1)

        loop.run_until_complete(loop.spawn("broker", story()))


def test_who_finds_no_descriptor_lets_others_sync_that_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may close files."""
    honest, stuck = SyncJob.run, SYNCS_UNHURRIED_MAX

    def run(job: SyncJob) -> None:
        nonlocal stuck
        if loop.time() < 1 and (stuck := stuck - 1) >= 0:
            raise TooManyFilesError("none left")
        honest(job)

    monkeypatch.setattr(SyncJob, "run", run)
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, pytest.fail)
            many = [unsynced(group_commit) for _ in range(2 * SYNCS_UNHURRIED_MAX)]
            for partition in many:
                group_commit.request_unhurried(partition)
            await asyncio.sleep(0.05)
            synced = sorted(partition.log.synced_end.offset for partition in many)
            assert synced == [0] * SYNCS_UNHURRIED_MAX + [1] * SYNCS_UNHURRIED_MAX

        loop.run_until_complete(loop.spawn("broker", story()))
