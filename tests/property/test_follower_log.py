"""A follower's log through gaps, cuts, half-done compactions and new beginnings, killed between and within all of them.

Seeded stories beside `test_log_model`, which knows no gaps, and `test_compaction_model`, which knows no cuts. After a
kill, a power cut or an I/O error the log is opened again, and that may be stopped by another; after a full disk it may
go on as it is. What must hold then:
all that was durable and not to go is there (after a kill all that was written), in one piece and under its epochs;
nothing is there that was not, so nothing deleted comes back; keys have their latest values; a log that was to start
over is the old one or an empty one.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pytest
from tests.property.log_story import PowerCut, fail_once, interrupt
from tests.unit.storage.compacting import clean_job, contents, keyed, run_round, swap_all
from tests.unit.storage.logs import NOW_MS, Settings, opened, read, sync

from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import read_header, stamp
from penstock.replication.epoch_starts import save_starts
from penstock.storage.cleaner_checkpoint import Cleaned, save_cleaned
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew, start_over
from penstock.storage.replicated import UnknownStartError, append_replicated, truncate
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

SEEDS = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "100")) * 2
ALL = 1 << 60
FAR = 1 << 32


class Stored(NamedTuple):
    base: int
    last: int
    epoch: int
    producer: int
    crc: int


class Goes(NamedTuple):
    """What an operation takes away: all from `behind` on, and all before `below`; or what it likes."""

    behind: int = ALL
    below: int = 0
    anything: bool = False


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = MemFiles(seed)
        self.settings = Settings(
            compacts=True,
            segment_bytes=self.rng.choice([150, 300, 700]),
            index_interval_bytes=self.rng.choice([1, 100, 4096]),
        )
        self.log = opened(self.files, self.settings).log
        save_cleaned(self.files, self.log.directory, Cleaned())
        self.starts = [(1, 0)]  # of epochs, as the leader has them
        self.cleaned_to = 0
        self.begun = 0  # where the log began last; what was before it is not known any more
        self.steps: list[str] = []

    def tell(self) -> None:
        chances = {
            self.append: 24,
            self.sync: 7,
            self.elect: 2,
            self.roll: 2,
            self.cut: 5,
            self.clean: 5,
            self.delete: 2,
            self.expire: 2,
            self.begin_at: 1,
            self.start_over: 1,
            self.nothing: 5,
        }
        for _ in range(self.rng.randint(5, 60)):
            (step,) = self.rng.choices(list(chances), list(chances.values()))
            self.steps.append(step.__name__)
            goes, work = step()
            if step != self.nothing and self.rng.random() < 0.7:
                work()
            else:
                self.stopped_during(work, goes)

    def stopped_during(self, work: Callable[[], None], goes: Goes) -> None:
        before, synced, latest = self.stored(), self.log.synced_end.offset, self.latest()
        how = self.rng.choice(["power cut", "kill", "error", "error that drops pages", "full disk"])
        self.files.drops_pages = "drops" in how
        if "full" in how:
            self.files.fill_up(self.rng.choice([10, self.rng.randint(0, 300)]))
        else:
            (fail_once if "error" in how else interrupt)(self.files, self.rng.randint(0, 40))
        try:
            work()
        except (PowerCut, StorageError, ApiError):
            self.steps[-1] += "!"
        appended = self.steps[-1].startswith("append")
        self.steps.append(how)
        self.opened_after(how)
        self.cleaned_to = 0
        after = self.stored()
        keeps_all = self.steps[-1] in ("kill", "error", "full disk")
        stays = [one for one in before if keeps_all or one.last < synced]
        if goes.anything:
            assert all(
                key in self.latest() for key, value in latest.items() if value is not None and keeps_all
            )
        elif self.steps[-2].startswith("start_over"):
            assert not after or set(stays) <= set(after)
        else:
            assert {one for one in stays if one.last < goes.behind and one.last >= goes.below} <= set(after)
        if not goes.anything and not appended:
            assert set(after) <= set(before)
        for one in after:
            assert self.log.epochs.epoch_at(max(one.base, self.log.start_offset)) == one.epoch
        self.begun = min(self.begun, self.log.segments[0].base_offset)
        self.check_producers(after)
        if self.rng.random() < 0.3:
            self.lasts()

    def opened_after(self, how: str) -> None:
        if "full" in how:
            opens = self.log.failed or not self.steps[-2].startswith(("append", "sync"))
            with suppress(StorageError):  # perhaps not without room
                if opens:
                    opened(self.files, self.settings, rewrite_tail=True)
            self.files.make_room()
            if opens:
                self.log = opened(self.files, self.settings, rewrite_tail=True).log
            return
        if "error" in how:  # the same process opens it again, perhaps not at the first try
            with suppress(StorageError):
                opened(self.files, self.settings, rewrite_tail=True)
            del self.files.enter
            self.log = opened(self.files, self.settings, rewrite_tail=True).log
            return
        self.files = self.files.crash(self.rng) if how == "power cut" else self.files.kill()
        if self.rng.random() < 0.3:
            self.stopped_again()
        self.log = opened(self.files, self.settings, rewrite_tail=self.rng.random() < 0.5).log

    def stopped_again(self) -> None:
        """While it is opened."""
        how = self.rng.choice(["power cut", "kill"])
        interrupt(self.files, self.rng.randint(0, 30))
        with suppress(PowerCut):
            opened(self.files, self.settings, rewrite_tail=True)
        self.files = self.files.crash(self.rng) if how == "power cut" else self.files.kill()
        if how == "power cut":
            self.steps[-1] = how

    def check_producers(self, stored: list[Stored]) -> None:
        known = {each.producer_id: each.batches[-1].last_offset for each in self.log.producers.copy()}
        assert all(self.begun <= last < self.log.end_offset for last in known.values())
        # Later ones may have been compacted away, for the sake of others that are cut.
        assert all(known[one.producer] >= one.last for one in stored if one.producer >= 0)

    def lasts(self) -> None:
        """What is written now and synced survives a power cut, whatever the process before left half-done."""
        rolls = self.rng.random() < 0.5
        if rolls:
            self.log.roll(NOW_MS)
        _, work = self.append()
        work()
        sync(self.log, checkpoint=self.rng.random() < 0.5)
        before = self.stored()
        self.files = self.files.crash(self.rng)
        self.log = opened(self.files, self.settings).log
        assert self.stored() == before

    # -- what happens --------------------------------------------------------------------------------------

    def append(self) -> tuple[Goes, Callable[[], None]]:
        offset = self.log.end_offset + self.rng.choice([0, 0, 0, 0, 0, self.rng.randint(1, 5)])
        if self.rng.random() < 0.005:
            offset += FAR
        number = len(self.steps)
        producer = self.rng.choice([None, (1, 0, number), (2, 0, number)])
        pairs = [
            (b"k%d" % self.rng.randrange(4), self.rng.choice([None, b"v%d" % number]))
            for _ in range(self.rng.randint(1, 3))
        ]
        batch = keyed(pairs, producer=producer)
        stamp(memoryview(batch), 0, offset, self.starts[-1][0])

        def work() -> None:
            try:
                append_replicated(self.log, memoryview(batch), NOW_MS)
            except UnknownStartError as unknown:
                epochs = self.log.epochs.copy()
                epochs.cross_gap(self.starts, unknown.epoch, unknown.gap)
                save_starts(self.files, self.log.directory, epochs)
                append_replicated(self.log, memoryview(batch), NOW_MS, starts=self.starts)

        return Goes(), work

    def sync(self) -> tuple[Goes, Callable[[], None]]:
        checkpoint = self.rng.random() < 0.5
        return Goes(), lambda: _done(sync(self.log, checkpoint=checkpoint))

    def elect(self) -> tuple[Goes, Callable[[], None]]:
        self.starts.append((self.starts[-1][0] + 1, self.log.end_offset))
        return Goes(), lambda: None

    def roll(self) -> tuple[Goes, Callable[[], None]]:
        return Goes(), lambda: _done(self.log.roll(NOW_MS))

    def cut(self) -> tuple[Goes, Callable[[], None]]:
        offset = self.rng.randint(max(0, self.log.end_offset - 12), self.log.end_offset)
        self.cleaned_to, self.begun = min(self.cleaned_to, offset), min(self.begun, offset)
        self.parted_at(offset)
        return Goes(behind=offset), lambda: truncate(self.log, offset)

    def parted_at(self, offset: int) -> None:
        """Another leads, and has nothing of what came behind."""
        epoch = self.starts[-1][0] + 1
        self.starts = [(known, start) for known, start in self.starts if start < offset] + [(epoch, offset)]

    def clean(self) -> tuple[Goes, Callable[[], None]]:
        share, age_ms = self.rng.choice([1.0, self.rng.random()]), self.rng.choice([0, 5000])
        merged = self.rng.choice([1, 1 << 30])

        def work() -> None:
            self.log.roll(NOW_MS)
            sync(self.log, checkpoint=True)
            job = clean_job(
                self.log, cleaned_to=self.cleaned_to, now_ms=NOW_MS + age_ms, segment_bytes=merged
            )
            made = run_round(job)
            swap_all(self.log, made._replace(segments=made.segments[: int(share * len(made.segments))]))
            if share == 1:
                self.cleaned_to = made.end_offset

        return Goes(anything=True), work

    def delete(self) -> tuple[Goes, Callable[[], None]]:
        offset = self.rng.randint(self.log.start_offset, self.log.end_offset)
        sync(self.log)  # only what is committed is deleted

        def work() -> None:
            self.log.advance_start(offset)
            self.log.start_job().run()

        return Goes(below=offset), work

    def expire(self) -> tuple[Goes, Callable[[], None]]:
        deletion = self.log.expire(RetentionLimits(), self.log.end_offset, NOW_MS)
        return Goes(), (lambda: _done(deletion.hide())) if deletion else (lambda: None)

    def begin_at(self) -> tuple[Goes, Callable[[], None]]:
        return self.replaced(self.log.end_offset + self.rng.randint(1, 9), begin_anew)

    def start_over(self) -> tuple[Goes, Callable[[], None]]:
        return self.replaced(self.rng.randint(0, self.log.end_offset + 5), start_over)

    def replaced(
        self, offset: int, made: Callable[[Log, int, ProducerState], Log]
    ) -> tuple[Goes, Callable[[], None]]:
        self.parted_at(offset)

        def work() -> None:
            self.log, self.cleaned_to, self.begun = made(self.log, offset, ProducerState()), 0, offset

        return Goes(behind=0), work

    def nothing(self) -> tuple[Goes, Callable[[], None]]:
        return Goes(), lambda: None

    # -- what is there -------------------------------------------------------------------------------------

    def stored(self) -> list[Stored]:
        found, at = [], self.log.start_offset
        while at < self.log.end_offset and (data := read(self.log, at, size_max=1)):
            header = read_header(data)
            assert header.next_offset > at
            at = header.next_offset
            found.append(
                Stored(
                    header.base_offset,
                    header.last_offset,
                    header.leader_epoch,
                    header.producer_id,
                    header.crc,
                )
            )
        return found

    def latest(self) -> dict[bytes | None, bytes | None]:
        return {key: value for _, key, value in contents(self.log)}


def _done(_: object) -> None:
    pass


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_a_followers_log_is_what_it_was(first: int) -> None:
    for seed in range(first, first + 50):
        story = Story(seed)
        try:
            story.tell()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {' '.join(story.steps)}") from error
