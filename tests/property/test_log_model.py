"""The log equals a list of batches, whatever happens to it and to the machine below it.

The machine runs a log on simulated files beside a list of the batches it should hold. Jobs may be interrupted by a
power cut at any of their file operations. What must hold afterwards: everything up to the last finished sync is
there, nothing is there in part, offsets follow each other, and all that is derived from the batches (indexes,
producers, epochs, times, sizes) is what one gets by looking at the list.
"""

import os
import random
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.log_story import PowerCut, Stored, interrupt, last_header
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, read

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError
from penstock.records.batch import read_header
from penstock.storage.checkpoint import checkpoint_all
from penstock.storage.layout import SNAPSHOT, parse_segment_name
from penstock.storage.log import Log
from penstock.storage.producers import AppendedBatch
from penstock.storage.recovered import Recovered
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "100"))  # a fifth of them in `test_log_short`
PRODUCERS = 3
SEQUENCE_MAX = 2**31 - 1


class LogModel(RuleBasedStateMachine):
    log: Log

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([300, 1000, 4000]),
        interval=st.sampled_from([0, 150, 4096]),
        cold_chance=st.sampled_from([0.0, 0.3]),
    )
    def start(self, seed: int, segment_bytes: int, interval: int, cold_chance: float) -> None:
        self.rng = random.Random(seed)
        self.settings = Settings(segment_bytes, 5_000, interval, segment_index_bytes=8 * 12)
        self.files = MemFiles(seed, cold_chance=cold_chance)
        self.batches: list[Stored] = []  # all that were not truncated, deleted ones included
        self.begin = 0  # where the first of them was, or will be
        self.durable = 0  # so many of them survive a power cut
        self.first = 0  # the log's start
        self.durable_first = 0
        self.epoch = 0
        self.now = NOW_MS
        self.full = False
        self.open()

    # -- writing -------------------------------------------------------------------------------------------

    @rule(
        producer=st.none() | st.integers(1, PRODUCERS),
        shifts=st.lists(st.integers(-50, 400), min_size=1, max_size=5),
        padding=st.integers(0, 120),
        bump=st.sampled_from([False, False, False, True]),
    )
    def append(self, producer: int | None, shifts: list[int], padding: int, bump: bool) -> None:
        self.now += 20
        times = tuple(self.now + shift for shift in shifts)
        key = None if producer is None else self.next_sequence(producer, bump=bump)
        batch = a_batch(times, producer=key, padding=padding)
        before = self.log.end()
        try:
            if producer is not None:
                assert self.log.find_repeat(read_header(batch)) is None
            offset = append(self.log, batch, epoch=self.epoch, now_ms=self.now)
        except ApiError as error:
            assert self.full
            if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            assert not self.log.failed
            assert self.log.end_offset == before.offset
            return
        assert offset == self.end_offset
        self.batches.append(Stored(bytes(batch), times, self.epoch))

    def next_sequence(self, producer: int, *, bump: bool) -> tuple[int, int, int]:
        known = self.expected_producers().get(producer)
        if known is None:
            return producer, 0, self.rng.choice([0, 7, SEQUENCE_MAX - 1])
        epoch, last = known[0], known[1][-1].last_sequence
        if bump:
            return producer, epoch + 1, 0
        return producer, epoch, 0 if last == SEQUENCE_MAX else last + 1

    @rule(back=st.integers(0, 6))
    def send_again(self, back: int) -> None:
        """A repeat among a producer's last five batches gets its old place; an older one is refused."""
        sent = [b for b in self.batches if b.header.producer_id == 1]
        if len(sent) <= back:
            return
        repeat = sent[-1 - back].header
        if repeat.producer_epoch != sent[-1].header.producer_epoch:
            with pytest.raises(ApiError) as refused:
                self.log.find_repeat(repeat)
            assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        elif back < 5:
            found = self.log.find_repeat(repeat)
            assert found is not None
            assert (found.first_offset, found.last_offset) == (repeat.base_offset, repeat.last_offset)
        else:
            with pytest.raises(ApiError) as refused:
                self.log.find_repeat(repeat)
            assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def new_leader(self) -> None:
        self.epoch += self.rng.randint(1, 3)

    @rule()
    @precondition(lambda self: not self.full)
    def roll(self) -> None:
        self.log.roll(self.now)

    # -- making it durable ---------------------------------------------------------------------------------

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        job = self.log.sync_job(checkpoint=checkpoint or self.log.needs_checkpoint)
        job.run()
        self.log.synced(job)
        self.durable = len(self.batches)

    @rule(operations=st.integers(0, 25))
    def power_cut_during_sync(self, operations: int) -> None:
        self.cut_power_during(self.log.sync_job(checkpoint=True).run, operations)

    @rule(clean=st.booleans())
    @precondition(lambda self: not self.full)
    def restart(self, clean: bool) -> None:
        if clean:
            self.stop_cleanly()
            self.durable = len(self.batches)
        self.files = self.files.kill()
        recovered = self.open()
        assert not recovered.cut_bytes
        assert not (clean and recovered.scanned_bytes)
        self.durable = len(self.batches)
        self.check_everything()

    def stop_cleanly(self) -> None:
        if not self.log.is_checkpointed:
            job = self.log.sync_job(checkpoint=True)
            checkpoint_all(self.files, Path("/data"), [job])
            assert job.checkpointed
            self.log.synced(job)
        self.log.close()

    @rule(operations=st.integers(0, 25))
    @precondition(lambda self: not self.full)
    def power_cut_during_stop(self, operations: int) -> None:
        self.cut_power_during(self.stop_cleanly, operations)

    @rule()
    def power_cut(self) -> None:
        self.cut_power_during(lambda: None, 0)

    def cut_power_during(
        self, job: Callable[[], object], operations: int, *, emptied: Container[int] = ()
    ) -> None:
        """`emptied`: where the log may begin again, empty, because it was cut to before its start."""
        interrupt(self.files, operations)
        with suppress(PowerCut):
            job()
        self.files = self.files.crash(self.rng)
        self.files.make_room()
        self.full = False
        self.open()
        if self.log.end_offset in emptied and self.begins_again():
            self.begin, self.batches, self.durable = self.log.end_offset, [], 0
        ends = [self.begin] + [batch.header.next_offset for batch in self.batches]
        assert self.log.end_offset in ends[self.durable :]
        del self.batches[ends.index(self.log.end_offset) :]
        self.durable = len(self.batches)
        assert self.durable_first <= self.log.start_offset <= max(self.first, self.durable_first)
        self.first = self.durable_first = self.log.start_offset
        self.check_everything()

    def begins_again(self) -> bool:
        """Not so where it ends at its start because what was behind that got lost: then it knows what producers did."""
        begun = self.log.segments[0].base_offset == self.log.end_offset
        return begun and not (self.log.producers.copy() and self.expected_producers())

    # -- shortening ----------------------------------------------------------------------------------------

    def some_offset(self) -> int:
        return self.rng.randint(self.first, self.end_offset)

    @rule(durably=st.booleans())
    @precondition(lambda self: not self.full)
    def delete_records(self, durably: bool) -> None:
        self.first = self.some_offset()
        self.log.advance_start(self.first)
        if durably:
            # Where others delete at the same time, no sync may cover it yet: only what is durable is marked.
            self.log.start_job().run()
            durable = self.batches[self.durable - 1].header.next_offset if self.durable else self.begin
            self.durable_first = max(self.durable_first, min(self.first, durable))

    @rule(operations=st.integers(0, 4), synced=st.booleans())
    @precondition(lambda self: not self.full)
    def power_cut_during_delete_records(self, operations: int, synced: bool) -> None:
        if synced:
            self.sync(checkpoint=False)
        self.first = self.some_offset()
        self.log.advance_start(self.first)
        self.cut_power_during(self.log.start_job().run, operations)

    @rule(
        retention_ms=st.sampled_from([-1, 0, 200, 2000]),
        retention_bytes=st.sampled_from([-1, 0, 500, 3000]),
        operations=st.none() | st.integers(0, 8),
    )
    @precondition(lambda self: not self.full)
    def retain(self, retention_ms: int, retention_bytes: int, operations: int | None) -> None:
        self.sync(checkpoint=False)
        for segment in self.log.row.unknown_times():
            segment.load_times()
        limits = RetentionLimits(retention_ms, retention_bytes)
        deletion = self.log.expire(limits, self.end_offset, self.now + 1000)
        self.first = max(self.first, self.log.segments[0].base_offset)
        assert self.log.start_offset == self.first
        if deletion is None:
            return
        if operations is not None:
            self.cut_power_during(deletion.hide, operations)
            return
        deletion.hide()
        self.log.hidden(deletion)
        self.durable_first = max(self.durable_first, self.log.segments[0].base_offset)
        deletion.unlink()

    @rule(operations=st.none() | st.integers(0, 25))
    @precondition(lambda self: not self.full)
    def truncate(self, operations: int | None) -> None:
        offset = self.rng.randint(max(self.log.segments[0].base_offset, self.first - 3), self.end_offset)
        ends = [self.begin] + [batch.header.next_offset for batch in self.batches]
        keep = max(at for at, end in enumerate(ends) if end <= offset)
        job = self.log.truncation(offset)
        if job is None or not self.knows_producers_at(ends[keep]):
            return
        if operations is not None:
            self.durable = min(self.durable, keep)
            # A checkpoint may have made a later start durable than DeleteRecords did.
            emptied = range(max(self.durable_first, ends[keep] + 1), self.first + 1)
            self.durable_first = min(self.durable_first, ends[keep])
            self.cut_power_during(job.run, operations, emptied=emptied)
            return
        job.run()
        self.log.truncated(job)
        del self.batches[keep:]
        self.durable = keep
        self.first = min(self.first, self.end_offset)
        self.durable_first = min(self.durable_first, self.first)
        self.check_everything()

    def knows_producers_at(self, offset: int) -> bool:
        """Whether no batch that retention deleted is needed to say what producers had done by then."""
        base = self.log.segments[0].base_offset
        names = self.files.list_dir(self.log.directory)
        snapshots = [at for name in names if (at := parse_segment_name(name, SNAPSHOT)) is not None]
        return base == 0 or any(base <= at <= offset for at in snapshots)

    # -- bad disks -----------------------------------------------------------------------------------------

    @rule(bytes_left=st.integers(0, 500))
    def fill_disk(self, bytes_left: int) -> None:
        self.files.fill_up(bytes_left)
        self.full = True

    @rule()
    def make_room(self) -> None:
        self.files.make_room()
        self.full = False

    @rule(operation=st.sampled_from(["sync", "write"]))
    @precondition(lambda self: not self.full)
    def io_error(self, operation: str) -> None:
        self.files.fail_next(operation, "*.log")
        if operation == "sync":
            append(self.log, extra := a_batch([self.now]), epoch=self.epoch, now_ms=self.now)
            self.batches.append(Stored(bytes(extra), (self.now,), self.epoch))
            with pytest.raises(DiskFailedError):
                self.log.sync_job(checkpoint=True).run()
            self.log.sync_failed()
        with pytest.raises(ApiError) as refused:
            append(self.log, a_batch([self.now]), epoch=self.epoch, now_ms=self.now)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert self.log.failed
        self.log.close()
        self.open(rewrite_tail=True)
        self.durable = len(self.batches)
        self.first = max(self.durable_first, self.log.start_offset)
        self.check_everything()

    # -- what must hold ------------------------------------------------------------------------------------

    def open(self, *, rewrite_tail: bool = False) -> Recovered:
        recovered = opened(self.files, self.settings, rewrite_tail=rewrite_tail)
        assert (recovered.lost, recovered.set_aside) == (None, []), "whatever happens, what was durable is"
        self.log = recovered.log
        self.first = max(self.durable_first, self.log.start_offset) if self.batches else self.log.start_offset
        return recovered

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.begin

    def visible(self) -> list[Stored]:
        return [batch for batch in self.batches if batch.header.last_offset >= self.first]

    def expected_producers(self) -> dict[int, tuple[int, list[AppendedBatch]]]:
        state: dict[int, tuple[int, list[AppendedBatch]]] = {}
        for header in (batch.header for batch in self.batches):
            if header.producer_id < 0:
                continue
            epoch, known = state.get(header.producer_id, (header.producer_epoch, []))
            if epoch != header.producer_epoch:
                known = []
            sequences = header.base_sequence, header.last_sequence
            offsets = header.base_offset, header.last_offset
            known = [*known, AppendedBatch(*sequences, *offsets, header.max_timestamp)][-5:]
            state[header.producer_id] = header.producer_epoch, known
        return state

    @invariant()
    def bounds_and_sizes_agree(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.first, self.end_offset)
        kept = [b for b in self.batches if b.header.base_offset >= log.segments[0].base_offset]
        assert log.size_bytes == sum(len(batch.data) for batch in kept)
        actual = {p.producer_id: (p.epoch, list(p.batches)) for p in log.producers.copy()}
        assert actual == self.expected_producers()

    @invariant()
    def now_and_then_everything_agrees(self) -> None:
        if self.rng.random() < 0.1:
            self.check_everything()

    def check_everything(self) -> None:
        self.bounds_and_sizes_agree()
        self.check_reads()
        self.check_times()
        self.check_epochs()

    def check_reads(self) -> None:
        for batch in self.visible():
            for offset in range(max(batch.header.base_offset, self.first), batch.header.next_offset):
                assert read(self.log, offset, size_max=1) == batch.data
        if self.first < self.end_offset:
            offset, data = self.first, b""
            while offset < self.end_offset:
                data += (answer := read(self.log, offset, size_max=self.rng.choice([1, 200, 1000])))
                offset = last_header(answer).next_offset
            assert data == b"".join(batch.data for batch in self.visible())

    def check_times(self) -> None:
        records = [
            (offset, time)
            for batch in self.visible()
            for offset, time in enumerate(batch.times, batch.header.base_offset)
            if offset >= self.first
        ]
        lookup = self.log.lookup(self.log.end())
        for wanted in sorted({time + shift for _, time in records for shift in (0, 1)} | {0}):
            expected = next(((offset, time) for offset, time in records if time >= wanted), None)
            assert lookup.first_at_or_after(wanted) == expected
        whole = [b for b in self.visible() if b.header.base_offset >= self.first]
        if whole == self.visible():
            latest = max((time for _, time in records), default=None)
            expected = next(((offset, time) for offset, time in records if time == latest), None)
            assert lookup.latest() == expected

    def check_epochs(self) -> None:
        """Where nothing is left to read, nothing is said about who wrote it."""
        expected: list[tuple[int, int]] = []
        for batch in self.visible():
            if not expected or batch.epoch > expected[-1][0]:
                expected.append((batch.epoch, max(batch.header.base_offset, self.first)))
        if expected:
            known = {max(start, self.first): epoch for epoch, start in self.log.epochs.entries()}
            assert [(epoch, start) for start, epoch in known.items()] == expected
            # Of what was before, no more than the last record.
            assert all(start >= self.first - 1 for _, start in self.log.epochs.entries())


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=EXAMPLES - EXAMPLES // 5, stateful_step_count=30)
