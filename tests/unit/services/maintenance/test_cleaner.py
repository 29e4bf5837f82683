"""The cleaner on the simulated loop: which log is due, who is left alone, and what ends a round."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.storage.compacting import keyed
from tests.unit.storage.logs import opened

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.core.archive_progress import ArchiveProgress
from penstock.core.jobs import Jobs
from penstock.records.batch import read_header
from penstock.records.reader import read_all
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.maintenance.cleaner import Cleaner
from penstock.storage.compaction.checkpoint import Cleaned, load_cleaned
from penstock.storage.layout import CLEANER_FILE, RECOVERY_POINT_FILE, partition_dir
from penstock.storage.replicated import truncate
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_loop import SimLoop

if TYPE_CHECKING:
    from penstock.core.clock import Clock
    from penstock.storage.deletion import Deletion

DATA = Path("/data")
COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "400", "min.cleanable.dirty.ratio": "0.1"}


class Bench:
    """A few compacted partitions, and a cleaner that is asked by hand."""

    def __init__(self, loop: SimLoop, settings: dict[str, str] | None = None) -> None:
        self.loop = loop
        self.files = MemFiles(loop.seed)
        self.table = PartitionTable()
        self.clock: Clock = SimClock(loop)
        self.group_commit = GroupCommit(loop, None, lambda message: None)
        self.deletions: list[Deletion] = []
        self.cleaner = self.made_cleaner(settings)

    def made_cleaner(self, settings: dict[str, str] | None = None) -> Cleaner:
        self.config = BrokerConfig.resolve(
            {"log.dirs": "/data", "log.cleaner.backoff.ms": "10", **(settings or {})}
        )
        return Cleaner(
            self.loop,
            Jobs(self.loop, None),
            None,
            self.clock,
            self.table,
            self.group_commit,
            LiveConfig(self.config),
            lambda deletion, delay_ms: self.deletions.append(deletion),
        )

    def topic(self, name: str, **overrides: str) -> Partition:
        settings = COMPACT | {key.replace("_", "."): value for key, value in overrides.items()}
        config = TopicConfig.resolve(settings, self.config)
        directory = partition_dir(DATA, name, 0)
        log = opened(self.files, None, directory).log
        topic_id = name.encode().ljust(16, b"-")
        partition = Partition(name, topic_id, 0, log, 0, self.group_commit, sync_before_ack=True)
        self.table.add(Topic(name, topic_id, config, {0: partition}))
        self.table.by_id[topic_id].configure(config)
        return partition

    def configure(self, name: str, **overrides: str) -> None:
        topic = self.table.by_name[name.encode()]
        changed = {key.replace("_", "."): value for key, value in overrides.items()}
        topic.configure(TopicConfig.resolve({**topic.config.overrides, **changed}, self.config))

    async def write(self, partition: Partition, count: int = 60, keys: int = 3) -> None:
        for number in range(count):
            batch = keyed([(b"%d" % (number % keys), b"value")], time=self.clock.now_ms())
            partition.append(memoryview(batch), read_header(batch), self.clock.now_ms())
        await self.settled(partition)

    async def put(self, partition: Partition, key: bytes, value: bytes | None) -> None:
        batch = keyed([(key, value)], time=self.clock.now_ms())
        partition.append(memoryview(batch), read_header(batch), self.clock.now_ms())
        await self.settled(partition)

    def restart(self, partition: Partition) -> None:
        """Another process opens the log, or makes it anew."""
        partition.log = opened(self.files, None, partition.log.directory).log
        partition.limits.move(partition.log.end())
        self.table.by_id[partition.topic_id].configure(self.table.by_id[partition.topic_id].config)

    async def settled(self, partition: Partition) -> None:
        """Everything synced and checkpointed, so that all sealed segments may be compacted."""
        for _ in range(2):
            self.group_commit.request(partition)
            await asyncio.sleep(1)
            await self.group_commit.idle()

    def count(self, partition: Partition) -> int:
        found = 0
        for segment in partition.log.segments:
            found += len(list(read_all(memoryview(segment.file.pread(segment.size, 0)))))
        return found


Story = Callable[[Bench], Coroutine[Any, Any, None]]


def run(story: Story, settings: dict[str, str] | None = None, seed: int = 1) -> None:
    loop = SimLoop(seed)

    async def told() -> None:
        await story(Bench(loop, settings))

    loop.run_until_complete(loop.spawn("broker", told()))


def test_the_dirtiest_log_goes_first_and_a_clean_one_rests() -> None:
    async def story(bench: Bench) -> None:
        small, large = bench.topic("small"), bench.topic("large")
        await bench.write(small, 60)
        assert await bench.cleaner.clean_next()
        assert not await bench.cleaner.clean_next()
        await bench.write(small, 20)
        await bench.write(large, 60)
        await bench.cleaner.clean_next()
        assert bench.count(large) < 20
        assert bench.count(small) > 20
        assert await bench.cleaner.clean_next()
        assert not await bench.cleaner.clean_next()
        assert bench.count(small) < 20
        assert bench.cleaner.stats.rounds == 3
        assert all(deletion.size_bytes for deletion in bench.deletions)

    run(story)


def test_a_log_is_due_by_its_dirty_share() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t", min_cleanable_dirty_ratio="0.9")
        await bench.write(partition, 60, keys=60)
        assert await bench.cleaner.clean_next()
        await bench.write(partition, 60, keys=60)
        assert not await bench.cleaner.clean_next()
        assert 0.3 < bench.cleaner.dirty_ratios["t", 0] < 0.7
        bench.configure("t", min_cleanable_dirty_ratio="0.3")
        assert await bench.cleaner.clean_next()

    run(story)


def test_min_compaction_lag_protects_what_is_young() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t", min_compaction_lag_ms="60000")
        await bench.write(partition)
        assert not await bench.cleaner.clean_next()
        await asyncio.sleep(61)
        assert await bench.cleaner.clean_next()

    run(story)


def test_max_compaction_lag_makes_a_log_due_and_rolls_its_segment() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000")
        await bench.write(partition)
        assert not await bench.cleaner.clean_next()
        await asyncio.sleep(61)
        assert await bench.cleaner.clean_next()
        assert not await bench.cleaner.clean_next()
        active = partition.log.active
        await asyncio.sleep(61)
        await bench.write(partition, 1)
        assert partition.log.active is not active

    run(story)


def test_the_archive_is_waited_for_until_the_very_exchange() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t", penstock_archive_required="true")
        await bench.write(partition)
        assert not await bench.cleaner.clean_next()
        progress = ArchiveProgress(partition.topic_id, {0: 60})
        bench.configure("t", penstock_archive_progress=str(progress))
        exchange = bench.cleaner._compaction._exchange

        async def lowered_meanwhile(*arguments: Any) -> bool:
            bench.configure("t", penstock_archive_progress="")
            return await exchange(*arguments)

        bench.cleaner._compaction._exchange = lowered_meanwhile  # type: ignore[method-assign]
        assert not await bench.cleaner.clean_next()
        assert bench.count(partition) == 60
        assert not [name for name in bench.files.list_dir(partition.log.directory) if "cleaned" in name]
        bench.cleaner._compaction._exchange = exchange  # type: ignore[method-assign]
        bench.configure("t", penstock_archive_progress=str(progress))
        assert await bench.cleaner.clean_next()
        assert bench.count(partition) < 20

    run(story)


def test_a_policy_that_changes_ends_the_round() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        exchange = bench.cleaner._compaction._exchange

        async def changed_meanwhile(*arguments: Any) -> bool:
            bench.configure("t", cleanup_policy="delete")
            return await exchange(*arguments)

        bench.cleaner._compaction._exchange = changed_meanwhile  # type: ignore[method-assign]
        assert not await bench.cleaner.clean_next()
        assert bench.count(partition) == 60

    run(story)


def test_an_unexpected_error_parks_one_partition_and_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Bench) -> None:
        broken, sound = bench.topic("broken"), bench.topic("sound")
        await bench.write(broken)
        await bench.write(sound)
        broken.log.segments[0].file.pwrite(b"!", 65)
        for _ in range(2):
            assert await bench.cleaner.clean_next()
        assert not await bench.cleaner.clean_next()
        assert list(bench.cleaner.parked) == [broken]
        assert (bench.count(sound) < 20, bench.cleaner.stats.rounds) == (True, 1)

    run(story)
    assert "broken-0 cannot be compacted" in caplog.text
    assert "the CRC does not match" in caplog.text


def test_a_full_disk_is_waited_out() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        bench.files.fill_up(0)
        assert not await bench.cleaner.clean_next()
        assert not bench.cleaner.parked
        assert not partition.log.failed
        bench.files.make_room()
        assert await bench.cleaner.clean_next()

    run(story)


def test_a_disk_that_fails_amid_an_exchange_takes_the_log_offline() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        directory = partition.log.directory
        before = bench.count(partition)
        bench.files.fail_next("rename", "*.swap")
        await bench.cleaner.clean_next()
        assert partition.log.failed
        assert before == 60
        again = opened(bench.files, None, directory).log
        assert again.end_offset == 60
        assert not [name for name in bench.files.list_dir(directory) if name.endswith(".swap")]

    run(story)


def test_what_is_clean_is_remembered_with_the_log() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        assert await bench.cleaner.clean_next()
        directory = partition.log.directory
        base = partition.log.active.base_offset
        assert load_cleaned(bench.files, directory, 0) == Cleaned(base, went_by=base)
        bench.restart(partition)
        assert not await bench.cleaner.clean_next()
        bench.files.open(directory / CLEANER_FILE).pwrite(b"9", 0)
        bench.restart(partition)
        assert partition.log.cleaned.offset == 0
        assert await bench.cleaner.clean_next()

    run(story)


def latest(partition: Partition, key: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for segment in partition.log.segments
        for record in read_all(memoryview(segment.file.pread(segment.size, 0)))
        if record.key == key
    ]


async def begin_again(bench: Bench, partition: Partition) -> None:
    """The replica went to another broker and came back: its directory is made anew."""
    partition.log.close()
    bench.files.remove_tree(partition.log.directory)
    bench.restart(partition)


async def cut_back(bench: Bench, partition: Partition) -> None:
    """Its new leader, uncleanly elected, has next to nothing of what it has."""
    truncate(partition.log, 1)
    partition.limits.move(partition.log.end())


async def lose_the_end(bench: Bench, partition: Partition) -> None:
    """A segment is damaged, and recovery, which finds no recovery point, keeps what lies before it."""
    log = partition.log
    log.close()
    bench.files.open(log.segments[0].paths()[0]).pwrite(b"!", 5)
    bench.files.unlink(log.directory / RECOVERY_POINT_FILE)
    bench.restart(partition)
    assert partition.log.end_offset < 10


@pytest.mark.parametrize("replaced", [begin_again, cut_back, lose_the_end])
def test_a_deleted_key_stays_deleted_in_a_log_that_takes_the_place_of_one_that_was_clean(
    replaced: Callable[[Bench, Partition], Coroutine[Any, Any, None]],
) -> None:
    """Cleaned from where the old log was clean, the tombstone goes and the value below stays."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t", delete_retention_ms="1000")
        await bench.write(partition, 60)
        assert await bench.cleaner.clean_next()
        await replaced(bench, partition)
        await bench.put(partition, b"gone", b"secret")
        await bench.write(partition, 20, keys=20)
        await bench.put(partition, b"gone", None)
        for _ in range(4):
            await bench.write(partition, 60, keys=60)
            assert await bench.cleaner.clean_next()
            await asyncio.sleep(5)
        assert latest(partition, b"gone") == []

    run(story)


def test_a_log_that_is_cut_under_a_round_is_not_taken_for_clean() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t", delete_retention_ms="1000")
        await bench.write(partition, 60, keys=60)
        play = bench.cleaner._compaction._may_change

        async def cut_meanwhile(*arguments: Any) -> bool:
            await cut_back(bench, partition)
            await bench.write(partition, 70, keys=3)
            return await play(*arguments)

        bench.cleaner._compaction._may_change = cut_meanwhile  # type: ignore[method-assign]
        assert not await bench.cleaner.clean_next()
        bench.cleaner._compaction._may_change = play  # type: ignore[method-assign]
        assert partition.log.cleaned.offset <= 1
        assert bench.count(partition) > 60
        assert await bench.cleaner.clean_next()
        assert bench.count(partition) < 20

    run(story)


def test_it_can_be_switched_off() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        await bench.cleaner.run()
        assert bench.count(partition) == 60

    run(story, {"log.cleaner.enable": "false"})


def test_more_keys_than_the_map_holds_are_compacted_all_the_same() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition, 120, keys=40)
        assert await bench.cleaner.clean_next()
        assert bench.cleaner.stats.rounds > 3
        assert bench.count(partition) < 60

    run(story, {"log.cleaner.dedupe.buffer.size": str(24 * 12)})
