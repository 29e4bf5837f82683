"""A follower's log through gaps, cuts, half-done compactions and new beginnings, killed between and within all of them.

Seeded stories beside `test_log_model`, which knows no gaps, and `test_compaction_model`, which knows no cuts. After a
kill, a power cut or an I/O error the log is opened again, and that may be stopped by another; after a full disk, or
without a descriptor, it goes on as it is where its broker would let it. What must hold then: all that was durable is
there unless it was to go (after a kill all that was written), in one piece and under its epochs; it waits for no other
replica; what was deleted stays so; keys have their latest values; a log that was to start over is the old one or an
empty one. What retention took and could not hide may come back, but leaves no hole.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tests.property.log_story import WAYS, PowerCut, fail_once, forget_pages_at, interrupt, short_behind
from tests.property.stored_batches import Stored, stored_in
from tests.unit.storage.compacting import clean_job, contents, keyed, run_round, swap_all
from tests.unit.storage.logs import NOW_MS, Settings, opened

from penstock.core.errors import ApiError, ShortageError, StorageError, TooManyFilesError
from penstock.records.batch import stamp
from penstock.replication.epoch_starts import save_starts
from penstock.storage.compaction.checkpoint import Cleaned, CleanedNote
from penstock.storage.deletion import StartJob
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import begin_anew, start_over
from penstock.storage.replicated import UnknownStartError, append_replicated
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

# What a broker does again, or goes on without, when something ran out.
GOES_ON = ("append", "sync", "elect", "roll", "cut", "delete", "expire", "lack", "mark", "nothing")
ALL = 1 << 60
FAR = 1 << 32


class Goes(NamedTuple):
    """What an operation takes away: all from `behind` on; or what it likes."""

    behind: int = ALL
    anything: bool = False


Step = tuple[Goes, Callable[[], object]]


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.others = random.Random(seed)  # whether any are in sync: that changes nothing else
        self.files = MemFiles(seed)
        self.settings = Settings(
            compacts=True,
            segment_bytes=self.rng.choice([150, 300, 700]),
            index_interval_bytes=self.rng.choice([1, 100, 4096]),
        )
        self.log = opened(self.files, self.settings).log
        self.tombstones = self.rng.choice([0, 100])  # below it they may be missing: the mark never goes back
        self.note(Cleaned(tombstones=self.tombstones))
        self.starts = [(1, 0)]  # of epochs, as the leader has them
        self.cleaned_to = 0  # compaction went through it, and nobody wrote there since: no mark is ahead
        self.begun = 0  # where the log began last; what was before it is not known any more
        self.leaving: list[Stored] = []  # retention took it, and it may not be hidden yet
        self.went_below = 0  # where the log begins by that, or by what its leader deleted
        self.way = self.rng.choice(WAYS)
        self.steps: list[str] = []

    def tell(self) -> None:
        chances = {
            self.append: 24,
            self.sync: 9,
            self.elect: 2,
            self.roll: 2,
            self.cut: 5,
            self.clean: 5,
            self.delete: 2,
            self.expire: 3,
            self.lack: 1,
            self.mark: 2,
            self.begin_at: 1,
            self.start_over: 2,
            self.nothing: 5,
        }
        # Each story likes one of them, and one way to be stopped.
        chances[self.rng.choice(list(chances))] += 20
        for _ in range(self.rng.randint(5, 60)):
            (step,) = self.rng.choices(list(chances), list(chances.values()))
            if (self.log._point_in_doubt or self.log.cleaned_in_doubt) and self.rng.random() < 0.8:
                step = self.cut
            self.steps.append(step.__name__)
            goes, work = step()
            if step != self.nothing and self.rng.random() < 0.7:
                work()
            else:
                self.stopped_during(work, goes)

    def stopped_during(self, work: Callable[[], object], goes: Goes) -> None:
        before, synced, latest = stored_in(self.log), self.log.synced_end.offset, self.latest()
        how = self.rng.choice([*WAYS, *[self.way] * len(WAYS)])
        self.begin(how)
        try:
            work()
        except (PowerCut, StorageError, ApiError):
            self.steps[-1] += "!"
        appended = self.steps[-1].startswith("append")
        self.steps.append(how)
        log = self.log
        self.opened_after(how)
        after = self.came_back() if self.log is not log else stored_in(self.log)
        assert self.log.cleaned.tombstones >= self.tombstones
        keeps_all = self.steps[-1] in ("kill", "error", "full disk", "shortage", "write-back")
        stays = [batch for batch in before if keeps_all or batch.last < synced]
        if goes.anything:
            has = self.latest()
            assert all(key in has for key, value in latest.items() if value is not None and keeps_all)
        elif self.steps[-2].startswith("start_over"):
            assert not after or set(stays) <= set(after)
        else:
            assert {stay for stay in stays if self.went_below <= stay.last < goes.behind} <= set(after)
        if not goes.anything and not appended:
            assert set(after) <= set(before)
        for batch in after:
            assert self.log.epochs.epoch_at(max(batch.base, self.log.start_offset)) == batch.epoch
        self.begun = min(self.begun, self.log.segments[0].base_offset)
        self.check_producers(after)
        if self.rng.random() < 0.3:
            self.lasts()

    def begin(self, how: str) -> None:
        self.files.drops_pages = "drops" in how
        if "full" in how:
            self.files.fill_up(self.rng.choice([10, self.rng.randint(0, 300)]))
        elif how == "shortage":
            short_behind(self.files, self.rng.choice([0, 1, 1, 2, 3, 3]))
            self.files.short_in = self.rng.choice([0, 0, 0, 1, self.rng.randint(1, 15)])
        elif how == "write-back":
            self.files.fail_write_back()
            while self.files.descriptors.close_some():
                pass
        else:
            if "error" in how and self.rng.random() < 0.3:
                self.files.fail_next("sync", "*.log")
            operations = self.rng.choice([self.rng.randint(0, 8), self.rng.randint(0, 40)])
            (fail_once if "error" in how else interrupt)(self.files, operations)

    def came_back(self) -> list[Stored]:
        """What there is; of what retention had taken, all from some place on."""
        found = stored_in(self.log)
        back = [batch for batch in found if batch in self.leaving]
        assert back == self.leaving[len(self.leaving) - len(back) :], "a hole"
        self.leaving = []
        return [batch for batch in found if batch not in back]

    def opened_after(self, how: str) -> None:
        if how in ("full disk", "shortage"):
            opens = self.log.failed or not self.steps[-2].startswith(GOES_ON)
            if how == "shortage":
                del self.files.rename
                self.files.short_in = self.rng.choice([0, self.rng.randint(1, 20)])
            if opens:
                with suppress(StorageError):  # perhaps not without room
                    self.recovered(rewrite_tail=True)
            self.files.make_room()
            self.files.short_in = 0
            if opens:
                self.log = self.open(rewrite_tail=True)
            elif self.steps[-2] == "delete!":
                self.delete_below(self.deleted_below)  # its leader tells it again
            return
        if how == "write-back":
            if not self.steps[-2].endswith("!"):
                with suppress(StorageError):
                    self.sync_now(checkpoint=False)
                    self.files = self.files.crash(self.rng)
            self.log = self.open(rewrite_tail=True)
            return
        if "error" in how:  # the same process opens it again, perhaps not at the first try
            self.files.mend()
            if self.rng.random() < 0.5:
                forget_pages_at(self.files, self.rng.randint(1, 8))
                self.steps[-1] = "error that drops pages"
            try:
                self.log = self.open(rewrite_tail=True)
                del self.files.enter
            except StorageError:
                del self.files.enter
                self.log = self.open(rewrite_tail=True)
            return
        self.files = self.files.crash(self.rng) if how == "power cut" else self.files.kill()
        if self.rng.random() < 0.3:
            self.stopped_again()
        self.log = self.open(rewrite_tail=self.rng.random() < 0.5)

    def open(self, *, rewrite_tail: bool = False) -> Log:
        recovered = self.recovered(rewrite_tail=rewrite_tail)
        assert recovered.lost is None, "whatever happens, what was durable is"
        assert not recovered.log.is_incomplete, "nor does it wait for others that may have more"
        assert not recovered.set_aside, "nor is anything of its own taken for another's"
        assert recovered.log.cleaned.offset <= self.cleaned_to
        return recovered.log

    def recovered(self, *, rewrite_tail: bool) -> Recovered:
        others = {"only_copy": self.others.random() < 0.5, "has_laggards": True}
        return opened(self.files, self.settings, rewrite_tail=rewrite_tail, **others)

    def stopped_again(self) -> None:
        """While it is opened."""
        how = self.rng.choice(["power cut", "kill"])
        interrupt(self.files, self.rng.randint(0, 30))
        with suppress(PowerCut):
            self.recovered(rewrite_tail=True)
        self.files = self.files.crash(self.rng) if how == "power cut" else self.files.kill()
        if how == "power cut":
            self.steps[-1] = how

    def check_producers(self, stored: list[Stored]) -> None:
        known = {each.producer_id: each.batches[-1].last_offset for each in self.log.producers.copy()}
        assert all(self.begun <= last < self.log.end_offset for last in known.values())
        # Later ones may have been compacted away, for the sake of others that are cut.
        assert all(known[batch.producer] >= batch.last for batch in stored if batch.producer >= 0)

    def lasts(self) -> None:
        """What is written now and synced survives a power cut, whatever the process before left half-done."""
        if self.rng.random() < 0.5:
            self.log.roll(NOW_MS)
        self.append()[1]()
        self.sync_now(checkpoint=self.rng.random() < 0.5)
        before = stored_in(self.log)
        self.files = self.files.crash(self.rng)
        self.log = self.open()
        assert self.came_back() == before

    # -- what happens --------------------------------------------------------------------------------------

    def append(self) -> Step:
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
            self.cleaned_to = min(self.cleaned_to, offset)
            try:
                append_replicated(self.log, memoryview(batch), NOW_MS)
            except UnknownStartError as unknown:
                epochs = self.log.epochs.copy()
                epochs.cross_gap(self.starts, unknown.epoch, unknown.gap)
                save_starts(self.files, self.log.directory, epochs)
                append_replicated(self.log, memoryview(batch), NOW_MS, starts=self.starts)

        return Goes(), work

    def sync(self) -> Step:
        return Goes(), partial(self.sync_now, checkpoint=self.rng.random() < 0.5)

    def sync_now(self, *, checkpoint: bool) -> None:
        job = self.log.sync_job(checkpoint=checkpoint)
        try:
            job.run()
        except TooManyFilesError:
            self.log.sync_undone(job)
            raise
        except StorageError:
            self.log.sync_failed()
            raise
        self.log.synced(job)

    def elect(self) -> Step:
        self.starts.append((self.starts[-1][0] + 1, self.log.end_offset))
        return Goes(), lambda: None

    def roll(self) -> Step:
        return Goes(), partial(self.log.roll, NOW_MS)

    def cut(self) -> Step:
        offset = self.rng.randint(max(0, self.log.end_offset - 12), self.log.end_offset)
        self.begun = min(self.begun, offset)
        self.parted_at(offset)
        return Goes(behind=offset), lambda: self.cut_to(offset)

    def cut_to(self, offset: int) -> None:
        leaving = self.leaving or self.log._leaving  # perhaps empty segments alone
        if leaving and offset < self.log.segments[0].base_offset:
            with suppress(StorageError):
                self.log.truncation(offset)
                raise AssertionError("what retention could not hide would follow the new end")
            self.log = self.open(rewrite_tail=True)
            self.leaving = []
        job = self.log.truncation(offset)
        if job is not None:
            try:
                job.run()
            except StorageError as error:
                if job.changed or not isinstance(error, ShortageError):
                    self.log.sync_failed()
                raise
            self.log.truncated(job)
            self.went_below = min(self.went_below, self.log.end_offset)

    def parted_at(self, offset: int) -> None:
        """Another leads, and has nothing of what came behind."""
        epoch = self.starts[-1][0] + 1
        self.starts = [(known, start) for known, start in self.starts if start < offset] + [(epoch, offset)]

    def clean(self) -> Step:
        share, age_ms = self.rng.choice([1.0, self.rng.random()]), self.rng.choice([0, 5000])
        merged = self.rng.choice([1, 1 << 30])

        def work() -> None:
            self.log.roll(NOW_MS)
            self.sync_now(checkpoint=True)
            if self.log.needs_checkpoint:
                return  # only what lies before the recovery point is compacted
            known = self.log.cleaned
            job = clean_job(self.log, cleaned_to=known.offset, now_ms=NOW_MS + age_ms, segment_bytes=merged)
            made = run_round(job)
            went = max((segment.tombstones_to for segment in made.segments), default=0)
            self.note(known.without_tombstones(went).going_by(made.end_offset))
            swap_all(self.log, made._replace(segments=made.segments[: int(share * len(made.segments))]))
            if share == 1:
                self.cleaned_to = max(self.cleaned_to, made.end_offset)  # a cut moves rounds back

        return Goes(anything=True), work

    def mark(self) -> Step:
        """What a round has gone through, and was not cut since, is clean."""
        clean_to = min(self.cleaned_to, self.log.end_offset)
        return Goes(), lambda: self.note(self.log.cleaned._replace(offset=clean_to))

    def note(self, known: Cleaned) -> None:
        note = CleanedNote(self.log, known)
        note.run()
        note.done()
        self.tombstones = known.tombstones

    def delete(self) -> Step:
        offset = self.rng.randint(self.log.start_offset, self.log.end_offset)
        self.sync_now(checkpoint=False)  # only what is committed is deleted
        return Goes(), lambda: self.delete_below(offset)

    def delete_below(self, offset: int) -> None:
        self.deleted_below, self.went_below = offset, max(self.went_below, offset)
        StartJob(self.files, self.log.directory, offset).run()
        self.log.advance_start(offset)

    def expire(self) -> Step:
        limits = RetentionLimits(retention_bytes=self.rng.randint(-1, self.log.size_bytes))
        if self.rng.random() < 0.3:  # else only what lies before an earlier one goes
            self.sync_now(checkpoint=True)

        def work() -> None:
            before = stored_in(self.log)
            deletion = self.log.expire(limits, self.log.synced_end.offset, NOW_MS)
            self.went_below = max(self.went_below, self.log.start_offset)
            self.leaving += [batch for batch in before if batch.last < self.log.start_offset]
            if deletion is not None:
                try:
                    deletion.hide()
                    self.leaving = []
                finally:
                    self.log.hidden(deletion)

        return Goes(), work

    def lack(self) -> Step:
        """Tombstones that its leader lacks, here and further on."""
        known = self.log.cleaned.without_tombstones(self.log.end_offset + self.rng.randint(0, 20))
        return Goes(), lambda: self.note(known)

    def begin_at(self) -> Step:
        return self.replaced(self.log.end_offset + self.rng.randint(1, 9), begin_anew)

    def start_over(self) -> Step:
        return self.replaced(self.rng.randint(0, self.log.end_offset + 5), start_over)

    def replaced(self, offset: int, made: Callable[[Log, int, ProducerState], Log]) -> Step:
        self.parted_at(offset)

        def work() -> None:
            self.log, self.begun = made(self.log, offset, ProducerState()), offset
            self.leaving, self.went_below = [], offset

        return Goes(behind=0), work

    def latest(self) -> dict[bytes | None, bytes | None]:
        return {key: value for _, key, value in contents(self.log)}

    def nothing(self) -> Step:
        return Goes(), lambda: None
