"""A compacted log equals a dict, whatever happens to it and to the machine below it.

The machine runs a log on simulated files beside everything that was ever written to it. Rounds of compaction, with
maps of a few keys and segments of a few batches, are cut off by power cuts and kills at any of their file operations.
What must hold at any time: a key has its latest value, at its offset; or, once its latest value was a tombstone for
long enough, nothing. No offset ever shows anything but what was written to it. Readers get from any offset to the end.
The log's end and what its producers did stay known, also without recovery point, snapshots and indexes.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.compacting import clean_job, keyed, records, run_round, swap_all
from tests.unit.storage.logs import NOW_MS, Settings, append, opened

from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, read_header
from penstock.storage.layout import RECOVERY_POINT_FILE, SNAPSHOT
from penstock.storage.log import Log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

KEYS = [b"a", b"b", b"c", b"d", b"e", None]
DELETE_RETENTION_MS = 300
PRODUCERS = 2


class Written(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int


class CompactionModel(RuleBasedStateMachine):
    log: Log

    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([300, 1000, 3000]),
        interval=st.sampled_from([0, 150, 4096]),
        cold_chance=st.sampled_from([0.0, 0.3]),
    )
    def start(self, seed: int, segment_bytes: int, interval: int, cold_chance: float) -> None:
        self.rng = random.Random(seed)
        self.settings = Settings(segment_bytes, 1 << 40, interval)
        self.files = MemFiles(seed, cold_chance=cold_chance)
        self.written: dict[int, Written] = {}
        self.headers: list[BatchHeader] = []
        self.durable_end = 0
        self.first = 0
        self.cleaned_to = 0
        self.now = NOW_MS
        self.count = 0
        self.log = opened(self.files, self.settings).log

    # -- what happens --------------------------------------------------------------------------------------

    @rule(
        pairs=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=5),
        producer=st.none() | st.integers(1, PRODUCERS),
        codec=st.sampled_from([0, 0, 3]),
    )
    def append(self, pairs: list[tuple[bytes | None, bool]], producer: int | None, codec: int) -> None:
        self.now += 20
        values = []
        for key, has_value in pairs:
            self.count += 1
            values.append((key, b"%d" % self.count if has_value or key is None else None))
        sequence = None if producer is None else (producer, 0, self.next_sequence(producer))
        batch = keyed(values, producer=sequence, codec=codec, time=self.now)
        offset = append(self.log, batch, now_ms=self.now)
        for number, (key, value) in enumerate(values):
            self.written[offset + number] = Written(key, value, self.now + number)
        self.headers.append(read_header(batch))

    def next_sequence(self, producer: int) -> int:
        last = next((h for h in reversed(self.headers) if h.producer_id == producer), None)
        return 0 if last is None else last.last_sequence + 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        job = self.log.sync_job(checkpoint=checkpoint or self.log.needs_checkpoint)
        job.run()
        self.log.synced(job)
        self.durable_end = self.log.end_offset

    @rule(ms=st.sampled_from([50, DELETE_RETENTION_MS, 10_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(
        keys=st.sampled_from([1, 2, 5, 100]),
        merged_bytes=st.sampled_from([0, 600, 5000]),
        noted=st.booleans(),
        operations=st.none() | st.integers(0, 60),
        power=st.booleans(),
    )
    def compact(self, keys: int, merged_bytes: int, noted: bool, operations: int | None, power: bool) -> None:
        """A round, perhaps cut off; it may also happen that nobody notes that it took place."""
        self.roll()
        self.sync(checkpoint=True)
        job = clean_job(
            self.log,
            cleaned_to=self.cleaned_to,
            now_ms=self.now,
            keys=keys,
            delete_retention_ms=DELETE_RETENTION_MS,
            segment_bytes=merged_bytes,
        )
        if operations is None:
            result = run_round(job)
            assert result.keys <= keys
            swap_all(self.log, result)
            self.cleaned_to = result.end_offset if noted else self.cleaned_to
            self.check_everything()
        else:
            self.interrupt(lambda: swap_all(self.log, run_round(job)), operations, power=power)

    @rule(operations=st.integers(0, 30), power=st.booleans())
    def interrupt_sync(self, operations: int, power: bool) -> None:
        self.interrupt(self.log.sync_job(checkpoint=True).run, operations, power=power)

    @rule(again=st.none() | st.integers(0, 15), lost=st.sampled_from(["nothing", "point", "everything"]))
    def crash(self, again: int | None, lost: str) -> None:
        """Also in the middle of the start that follows, and with files gone that can be made anew."""
        self.sync(checkpoint=False)
        self.files = self.files.kill()
        directory = self.log.directory
        for name in self.files.list_dir(directory):
            is_point = name == RECOVERY_POINT_FILE
            if (is_point and lost != "nothing") or (
                lost == "everything" and name.endswith((SNAPSHOT, "index"))
            ):
                self.files.unlink(directory / name)
        self.files.sync_dir(directory)
        if again is not None:
            self.interrupt(lambda: opened(self.files, self.settings), again, power=True)
        else:
            self.reopen()

    def interrupt(self, job: Callable[[], object], operations: int, *, power: bool) -> None:
        interrupt(self.files, operations)
        with suppress(PowerCut):
            job()
        self.files = self.files.crash(self.rng) if power else self.files.kill()
        self.reopen()

    def reopen(self) -> None:
        recovered = opened(self.files, self.settings)
        assert not recovered.set_aside
        self.log = recovered.log
        assert self.log.end_offset >= self.durable_end
        self.headers = [h for h in self.headers if h.next_offset <= self.log.end_offset]
        self.written = {o: w for o, w in self.written.items() if o < self.log.end_offset}
        self.durable_end = self.log.end_offset
        self.first = self.log.start_offset
        if self.rng.random() < 0.3:
            self.cleaned_to = self.rng.randint(0, self.cleaned_to)
        leftovers = [n for n in self.files.list_dir(self.log.directory) if "cleaned" in n or "swap" in n]
        assert not leftovers
        self.check_everything()

    @rule(retention_bytes=st.sampled_from([500, 2000]))
    @precondition(lambda self: self.rng.random() < 0.3)
    def retain(self, retention_bytes: int) -> None:
        self.sync(checkpoint=True)
        deletion = self.log.expire(
            RetentionLimits(retention_bytes=retention_bytes), self.log.end_offset, self.now
        )
        self.first = self.log.start_offset
        if deletion is not None:
            deletion.hide()
            deletion.unlink()

    # -- what must hold ------------------------------------------------------------------------------------

    @invariant()
    def bounds_agree(self) -> None:
        end = self.headers[-1].next_offset if self.headers else self.log.end_offset
        assert (self.log.start_offset, self.log.end_offset) == (self.first, end)

    @invariant()
    def now_and_then_everything_agrees(self) -> None:
        if self.rng.random() < 0.2:
            self.check_everything()

    def check_everything(self) -> None:
        self.bounds_agree()
        self.check_values()
        self.check_reads()
        self.check_producers()

    def check_values(self) -> None:
        seen = {r.offset: Written(r.key, r.value, r.timestamp) for r in records(self.log)}
        for offset, record in seen.items():
            assert record == self.written[offset]
        latest: dict[bytes, int] = {}
        for offset, (key, _, _) in self.written.items():
            if key is not None:
                latest[key] = offset
        for key, offset in latest.items():
            if offset < self.first:
                continue
            if self.written[offset].value is not None:
                assert offset in seen, f"{key!r} lost its value at {offset}"
            elif offset not in seen:
                assert self.written[offset].timestamp + DELETE_RETENTION_MS <= self.now + 5
                assert key not in {record.key for record in seen.values()}, f"{key!r} came back"

    def check_reads(self) -> None:
        """From any offset a reader gets to the end, and sees the same as one that began at the start."""
        everything = records(self.log)
        for offset in range(self.first, self.log.end_offset + 1):
            assert records(self.log, offset) == [r for r in everything if r.offset >= offset]
        lookup = self.log.lookup(self.log.end())
        for wanted in {r.timestamp for r in everything}:
            expected = next(r for r in everything if r.timestamp >= wanted)
            assert lookup.first_at_or_after(wanted) == (expected.offset, expected.timestamp)

    def check_producers(self) -> None:
        for producer in range(1, PRODUCERS + 1):
            last = next((h for h in reversed(self.headers) if h.producer_id == producer), None)
            if last is None or last.last_offset < self.first:
                continue
            found = self.log.find_repeat(last)
            assert found is not None
            assert (found.first_offset, found.last_offset) == (last.base_offset, last.last_offset)
            with suppress(ApiError):
                assert self.log.find_repeat(last._replace(base_sequence=last.last_sequence + 2)) is not None


TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = settings(
    max_examples=int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "100")), stateful_step_count=25
)
