"""What a log knows of transactions follows from its batches, whatever happens to it and to the machine below it.

A random story writes to a log, makes it durable, cuts it, deletes its beginning, kills it and takes its power away in
the midst of a job, beside a list of what was written. Open transactions, the first unstable offset and the lists of
aborted transactions must be what one gets by looking at the list.

Who looks at all of it after every step keeps all of it in memory: so some stories are looked at seldom, or by readers
in several places, who come late, and more segments have aborted transactions than stay in memory.
"""

import os
import random

import pytest
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.logs import Settings, a_batch, append, opened
from tests.unit.storage.transactions import (
    Transaction,
    Written,
    aborted_in,
    marker,
    transactional,
    transactions_of,
)

from penstock.storage.layout import RECOVERY_POINT_FILE, TXN_INDEX
from penstock.storage.replicated import truncate
from penstock.storage.retention import RetentionLimits
from penstock.storage.segment import ColdRead
from penstock.testing.mem_files import MemFiles

SEEDS = int(os.environ.get("PENSTOCK_TRANSACTION_LOG_SEEDS", "100"))
PRODUCERS = 4


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.settings = Settings(segment_bytes=self.rng.choice([300, 800, 4000]), index_interval_bytes=150)
        self.files = MemFiles(seed, cold_chance=0.1)
        self.written: list[Written] = []
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.high_watermark = 0
        self.look_chance = self.rng.choice([0.5, 0.1, 0.01])
        self.commit_chance = self.rng.choice([1, 0.3, 0.02])
        self.cold_reads: list[ColdRead] = []  # that readers wait for
        self.log = opened(self.files, self.settings).log

    def run(self, steps: int) -> None:
        acts = [self.write] * 8 + [self.end] * 6 + [self.plain, self.commit, self.roll]
        acts += [self.sync] * 3 + [self.checkpoint] * 2 + [self.look_somewhere] * 4
        acts += [self.come_to_read, self.read_file]
        troubles = [self.cut, self.cut_to_a_base, self.expire, self.kill, self.power_cut, self.damage]
        troubles.append(self.cut_beside_a_read)
        acts += self.rng.sample(troubles, self.rng.choice([0, 2, len(troubles)]))
        for _ in range(steps):
            self.rng.choice(acts)()
            if self.rng.random() < self.look_chance:
                self.check()
        self.check()

    # -- what happens ----------------------------------------------------------------------------------------

    def store(self, batch: bytearray, producer_id: int, committed: bool | None) -> None:
        offset = append(self.log, batch)
        self.written.append(Written(offset, self.log.end_offset, producer_id, committed))

    def write(self) -> None:
        producer_id, count = self.rng.randrange(PRODUCERS), self.rng.randint(1, 3)
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += count
        batch = transactional((producer_id, 0, sequence), count, padding=self.rng.choice([0, 60]))
        self.store(batch, producer_id, None)

    def end(self) -> None:
        """Also of one that has nothing open here, as after a fail-over of the coordinator."""
        producer_id, committed = self.rng.randrange(PRODUCERS), self.rng.random() < 0.4
        self.store(marker(producer_id, 0, committed=committed), producer_id, committed)

    def plain(self) -> None:
        self.store(a_batch(), -1, None)

    def commit(self) -> None:
        if self.rng.random() > self.commit_chance:
            return
        ends = [
            each.next_offset
            for each in self.written
            if self.high_watermark <= each.next_offset <= self.durable
        ]
        self.high_watermark = self.rng.choice([self.high_watermark, *ends])

    @property
    def durable(self) -> int:
        return self.log.synced_end.offset

    def roll(self) -> None:
        self.log.roll(0)

    def sync(self, *, checkpoint: bool = False) -> None:
        job = self.log.sync_job(checkpoint=checkpoint)
        job.run()
        self.log.synced(job)

    def checkpoint(self) -> None:
        self.sync(checkpoint=True)

    def cut(self) -> None:
        if self.log.end_offset > self.high_watermark:
            self.cut_to(self.rng.randint(self.high_watermark, self.log.end_offset))

    def cut_to_a_base(self) -> None:
        bases = [segment.base_offset for segment in self.log.segments]
        if found := [base for base in bases if self.high_watermark <= base < self.log.end_offset]:
            self.cut_to(self.rng.choice(found))

    def cut_to(self, offset: int) -> None:
        truncate(self.log, offset)
        self.forget_from(self.log.end_offset)

    def forget_from(self, offset: int) -> None:
        self.written = [batch for batch in self.written if batch.next_offset <= offset]

    def expire(self) -> None:
        unstable = self.log.producers.transactions.first_unstable(self.high_watermark)
        limit = self.high_watermark if unstable is None else min(unstable, self.high_watermark)
        done = self.log.expire(RetentionLimits(-1, 1), limit, 0)
        if done is not None:
            done.hide()
            self.log.hidden(done)
            done.unlink()

    def kill(self) -> None:
        self.files = self.files.kill()
        self.reopen()

    def power_cut(self) -> None:
        """Within a checkpoint or a cut, or between them."""
        interrupt(self.files, self.rng.randint(0, 25))
        cut_to = self.rng.randint(self.high_watermark, max(self.high_watermark, self.log.end_offset))
        was_cut = self.rng.random() < 0.4
        durable = self.durable
        try:
            if was_cut:
                durable = min(durable, cut_to)
                self.cut_to(cut_to)
                durable = min(self.durable, durable)
            else:
                self.checkpoint()
                durable = self.durable
        except PowerCut:
            pass
        self.files = self.files.crash(self.rng)
        self.reopen()
        assert self.log.end_offset >= min(durable, cut_to if was_cut else durable, self.high_watermark)

    def damage(self) -> None:
        """Of an index, or of the recovery point, and a restart."""
        self.checkpoint()
        names = [name for name in self.files.list_dir(self.log.directory) if name.endswith(TXN_INDEX)]
        if self.rng.random() < 0.3:
            names = [RECOVERY_POINT_FILE]
        if names:
            path = self.log.directory / self.rng.choice(names)
            file = self.files.open(path)
            file.pwrite(b"\xff" * 5, self.rng.choice([0, max(file.size() - 5, 0)]))
            file.sync()
            file.close()
        self.kill()

    def reopen(self) -> None:
        self.cold_reads.clear()
        self.log = opened(self.files, self.settings).log
        self.forget_from(self.log.end_offset)

    # -- readers ---------------------------------------------------------------------------------------------

    def look_somewhere(self) -> None:
        transactions = transactions_of(self.written)
        for _ in range(self.rng.choice([1, 1, 8])):
            first = self.rng.randint(self.log.start_offset, self.log.end_offset)
            stop = self.rng.randint(first, min(first + 3, self.log.end_offset))
            self.check_aborted(first, stop, transactions)

    def come_to_read(self) -> None:
        first = self.rng.randint(self.log.start_offset, self.log.end_offset)
        row = self.log.row
        try:
            row.aborted.between(first, self.log.end_offset, row.rebuild_aborted)
        except ColdRead as cold:
            self.cold_reads.append(cold)

    def read_file(self) -> None:
        """For one of them; whatever comes next may come before it goes on."""
        if self.cold_reads:
            self.cold_reads.pop(self.rng.randrange(len(self.cold_reads))).warm()

    def cut_beside_a_read(self) -> None:
        """It has the lists of before the cut."""
        self.come_to_read()
        while self.cold_reads:
            self.read_file()
        self.cut()
        self.check()

    # -- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        start = self.log.start_offset
        known = self.log.producers.transactions
        transactions = transactions_of(self.written)
        open_ = {each.producer_id: each.first for each in transactions if each.marker is None}
        assert {producer: known.first_offset(producer) for producer in open_} == open_
        assert all(known.first_offset(each) == -1 for each in range(PRODUCERS) if each not in open_)
        unstable = [
            each.first for each in transactions if each.marker is None or each.marker >= self.high_watermark
        ]
        assert known.first_unstable(self.high_watermark) == min(unstable, default=None)
        self.check_aborted(start, self.log.end_offset, transactions)
        first = self.rng.randint(start, self.log.end_offset)
        self.check_aborted(first, self.rng.randint(first, self.log.end_offset), transactions)

    def check_aborted(self, first: int, stop: int, transactions: list[Transaction]) -> None:
        expected = {
            (each.first, each.producer_id)
            for each in transactions
            if each.marker is not None and not each.committed and each.marker >= first and each.first < stop
        }
        found = aborted_in(self.log, first, stop)
        told = {(at, producer) for producer, at in found}
        assert self.known(told, stop) == self.known(expected, stop)
        assert [at for _, at in found] == sorted(at for _, at in found)

    def known(self, transactions: set[tuple[int, int]], stop: int) -> set[tuple[int, int]]:
        """By their first batches that are there: of some that began in what retention took, no more may be known."""
        base, found = self.log.segments[0].base_offset, set()
        for first, producer_id in transactions:
            begins = max(first, base)
            own = [each for each in self.written if each.producer_id == producer_id and each.offset >= begins]
            if own[0].committed is None and own[0].offset < stop:
                found.add((own[0].offset, producer_id))
        return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_transactions_follow_from_the_log(seed: int) -> None:
    Story(seed).run(250)
