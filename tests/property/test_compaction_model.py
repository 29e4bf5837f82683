"""A compacted log equals a dict, whatever happens to it and to the machine below it.

The machine runs a log on simulated files beside everything that was ever written to it. Rounds of compaction, with
maps of a few keys and segments of a few batches, are cut off by power cuts and kills at any of their file operations.
What must hold at any time: a key has its latest value, at its offset; or, once its latest value was a tombstone for
long enough, nothing. No offset ever shows anything but what was written to it. Readers get from any offset to the end.
The log's end and what its producers did stay known, also without recovery point, snapshots and indexes. And a round
that came to its end did its work: below its end each key occurs once, and tombstones that an earlier round saw go.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.compacting import clean_job, keyed, next_records, records, run_round, swap_all
from tests.unit.storage.logs import NOW_MS, Settings, append, opened

from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, read_header
from penstock.storage.compaction.clean_job import CleanJob
from penstock.storage.layout import RECOVERY_POINT_FILE, SNAPSHOT
from penstock.storage.log import Log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

KEYS = [b"a", b"b", b"c", b"d", b"e", None]
DELETE_RETENTION_MS = 300
PRODUCERS = 2
Pairs = list[tuple[bytes | None, bool]]  # key, and whether there is a value
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=5), min_size=1, max_size=4
)
WHO = st.none() | st.integers(1, PRODUCERS)
AGES_MS = st.sampled_from([0, 0, 700])
MAPS = st.sampled_from([1, 2, 5, 100])  # how many keys a round has room for
MERGED = st.sampled_from([0, 600, 5000])  # how large segments may become by merging, in bytes


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
        self.appended: dict[int, int] = {}  # when
        self.headers: list[BatchHeader] = []
        self.durable_end = 0
        self.first = 0
        self.cleaned_to = 0
        self.covered: dict[int, int] = {}  # when the first whole round saw a tombstone, by offset
        self.now = NOW_MS
        self.count = 0
        self.log = opened(self.files, self.settings).log

    # -- what happens --------------------------------------------------------------------------------------

    @rule(batches=BATCHES, producer=WHO, codec=st.sampled_from([0, 0, 3]), age_ms=AGES_MS)
    def append(self, batches: list[Pairs], producer: int | None, codec: int, age_ms: int) -> None:
        for pairs in batches:
            self.append_one(pairs, producer, codec, age_ms)

    def append_one(self, pairs: Pairs, producer: int | None, codec: int, age_ms: int) -> None:
        """`age_ms` is by how much the records' own times lag behind."""
        self.now += 20
        time = self.now - age_ms
        values = []
        for key, has_value in pairs:
            self.count += 1
            values.append((key, b"%d" % self.count if has_value or key is None else None))
        sequence = None if producer is None else (producer, 0, self.next_sequence(producer))
        batch = keyed(values, producer=sequence, codec=codec, time=time)
        offset = append(self.log, batch, now_ms=self.now)
        for number, (key, value) in enumerate(values):
            self.written[offset + number] = Written(key, value, time + number)
            self.appended[offset + number] = self.now
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

    def due(
        self, batches: list[Pairs], producer: int | None, age_ms: int, *, keys: int, merged_bytes: int
    ) -> CleanJob:
        """A round with something to do, after a while."""
        self.now += self.rng.choice([20, DELETE_RETENTION_MS, 10_000])
        self.append(batches, producer, 0, age_ms)
        self.roll()
        self.sync(checkpoint=True)
        return clean_job(
            self.log,
            cleaned_to=self.cleaned_to,
            now_ms=self.now,
            keys=keys,
            delete_retention_ms=DELETE_RETENTION_MS,
            segment_bytes=merged_bytes,
        )

    @rule(
        batches=BATCHES,
        producer=WHO,
        age_ms=AGES_MS,
        keys=MAPS,
        merged_bytes=MERGED,
        noted=st.sampled_from([1, 1, 0]),
    )
    def compact(
        self,
        batches: list[Pairs],
        producer: int | None,
        age_ms: int,
        keys: int,
        merged_bytes: int,
        noted: int,
    ) -> None:
        """A whole round; it may be that nobody notes that it took place."""
        result = run_round(self.due(batches, producer, age_ms, keys=keys, merged_bytes=merged_bytes))
        assert result.keys <= keys
        swap_all(self.log, result)
        self.cleaned_to = result.end_offset if noted else self.cleaned_to
        self.check_everything()
        self.check_compacted(result.end_offset)

    @rule(
        batches=BATCHES,
        producer=WHO,
        keys=MAPS,
        merged_bytes=MERGED,
        swapping=st.sampled_from([False, True, True]),
        operations=st.integers(0, 25),
        power=st.sampled_from([False, True, True]),
    )
    def compact_cut_off(
        self,
        batches: list[Pairs],
        producer: int | None,
        keys: int,
        merged_bytes: int,
        swapping: bool,
        operations: int,
        power: bool,
    ) -> None:
        """At any of its file operations, or of those that exchange the segments it made."""
        job = self.due(batches, producer, 0, keys=keys, merged_bytes=merged_bytes)
        if swapping:
            result = run_round(job)
            self.interrupt(lambda: swap_all(self.log, result), operations, power=power)
        else:
            self.interrupt(lambda: swap_all(self.log, run_round(job)), 2 * operations, power=power)

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
        assert recovered.lost is None
        self.log = recovered.log
        assert self.log.end_offset >= self.durable_end
        self.headers = [h for h in self.headers if h.next_offset <= self.log.end_offset]
        self.written = {o: w for o, w in self.written.items() if o < self.log.end_offset}
        self.covered = {o: when for o, when in self.covered.items() if o < self.log.end_offset}
        self.durable_end = self.log.end_offset
        self.first = self.log.start_offset
        if self.rng.random() < 0.3:
            self.cleaned_to = self.rng.randint(0, self.cleaned_to)
        leftovers = [n for n in self.files.list_dir(self.log.directory) if "cleaned" in n or "swap" in n]
        assert not leftovers
        self.check_everything()

    @rule(retention_bytes=st.sampled_from([500, 2000, 1 << 20, 1 << 20]))
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
                assert self.appended[offset] + DELETE_RETENTION_MS <= self.now
                assert key not in {record.key for record in seen.values()}, f"{key!r} came back"

    def check_compacted(self, end: int) -> None:
        latest = {written.key: offset for offset, written in self.written.items() if offset < end}
        for record in records(self.log):
            if record.offset >= end:
                break
            assert record.key is not None, f"{record.offset} has no key and is still there"
            assert latest[record.key] == record.offset, f"{record.key!r} has an old value at {record.offset}"
            if record.value is None:
                since = self.covered.setdefault(record.offset, self.now)
                assert self.now < since + DELETE_RETENTION_MS, (
                    f"the tombstone at {record.offset} stays for ever"
                )

    def check_reads(self) -> None:
        """From any offset a reader gets to the end, and sees the same as one that began at the start.

        Each takes its first step only: where that leads, another began.
        """
        everything = records(self.log)
        for offset in range(self.first, self.log.end_offset):
            found, then = next_records(self.log, offset)
            assert found == [r for r in everything if offset <= r.offset < then]
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
