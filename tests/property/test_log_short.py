"""The log model while descriptors run out, reads and write-backs fail, and the log goes on as its broker would have it.

A shortage is not a crash: what was begun is left half done, nothing is opened again, and the next job goes on from what
is in memory. So memory and disk may part, and only a kill much later shows it.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.property.log_story import Stored, fail_once
from tests.property.test_log_model import EXAMPLES, LogModel
from tests.unit.storage.logs import a_batch, append

from penstock.core.errors import ApiError, DiskFailedError, StorageError, TooManyFilesError
from penstock.storage.deletion import Deletion
from penstock.storage.retention import RetentionLimits

NUMBERS = st.integers(1, 12)


class ShortLogModel(LogModel):
    @rule(number=NUMBERS, checkpoint=st.booleans())
    def sync_while_short(self, number: int, checkpoint: bool) -> None:
        self.files.short_in = number
        job = self.log.sync_job(checkpoint=checkpoint or self.log.needs_checkpoint)
        try:
            job.run()
        except TooManyFilesError:
            self.log.sync_undone(job)
        else:
            self.log.synced(job)
            self.durable = len(self.batches)
        self.files.short_in = 0

    @rule(number=NUMBERS)
    @precondition(lambda self: not self.full)
    def append_while_short(self, number: int) -> None:
        self.files.short_in = number
        self.now += 20
        batch = a_batch([self.now], padding=100)
        try:
            append(self.log, batch, epoch=self.epoch, now_ms=self.now)
        except ApiError:
            assert not self.log.failed
        else:
            self.batches.append(Stored(bytes(batch), (self.now,), self.epoch))
        self.files.short_in = 0

    @rule(
        number=NUMBERS,
        fault=st.sampled_from(["descriptor", "rename", "sync_dir"]),
        retention_bytes=st.sampled_from([0, 500, 1500]),
    )
    @precondition(lambda self: not self.full)
    def retain_with_trouble(self, number: int, fault: str, retention_bytes: int) -> None:
        """As retention does: what cannot be hidden is not forgotten, and the next round begins with it."""
        self.sync(checkpoint=True)
        for segment in self.log.row.unknown_times():
            segment.load_times()
        limits = RetentionLimits(retention_bytes=retention_bytes)
        deletion = self.log.expire(limits, self.end_offset, self.now)
        self.first = max(self.first, self.log.segments[0].base_offset)
        if deletion is None:
            return
        if fault == "descriptor":
            self.files.short_in = number
        else:
            self.files.fail_next(fault, f"{self.log.directory}*")
        self.hide(deletion)
        self.files.short_in = 0
        self.files.mend()

    def hide(self, deletion: Deletion) -> None:
        try:
            deletion.hide()
        except StorageError:
            pass
        else:
            self.durable_first = max(self.durable_first, self.log.segments[0].base_offset)
        self.log.hidden(deletion)
        deletion.unlink()

    @rule(number=NUMBERS)
    @precondition(lambda self: not self.full)
    def truncate_while_short(self, number: int) -> None:
        """As a follower does: what has changed nothing is done again, and what has is opened again."""
        ends = [self.begin] + [batch.header.next_offset for batch in self.batches]
        keep = self.rng.choice([at for at, end in enumerate(ends) if end >= self.first])
        job = self.log.truncation(ends[keep])
        if job is None or not self.knows_producers_at(ends[keep]):
            return
        before = self.log.end()
        self.files.short_in = number
        try:
            job.run()
        except TooManyFilesError:
            self.files.short_in = 0
            if not job.changed:
                assert self.log.end() == before
                self.check_everything()
                return
            self.log.sync_failed()
            self.log.close()
            self.open(rewrite_tail=True)
            job = self.log.truncation(ends[keep])
            if job is not None:
                job.run()
        self.files.short_in = 0
        if job is not None:
            self.log.truncated(job)
        del self.batches[keep:]
        self.durable = keep
        self.durable_first = min(self.durable_first, self.first)
        self.check_everything()

    @rule(operations=st.integers(0, 40), kind=st.sampled_from(["error", "shortage"]))
    @precondition(lambda self: not self.full)
    def start_with_trouble(self, operations: int, kind: str) -> None:
        """It is killed; the next start meets an error or a shortage, and the one after that nothing of the kind."""
        self.files = self.files.kill()
        if kind == "error":
            fail_once(self.files, operations)
        else:
            self.files.short_in = operations
        try:
            self.open(rewrite_tail=True)
        except StorageError:
            self.files.__dict__.pop("enter", None)
            self.files.short_in = 0
            self.open(rewrite_tail=True)
        self.files.__dict__.pop("enter", None)
        self.files.short_in = 0
        self.durable = len(self.batches)
        self.check_everything()

    @rule(closes=st.booleans())
    @precondition(lambda self: not self.full)
    def write_back_fails(self, closes: bool) -> None:
        """Behind everybody's back: the next sync tells of it, however many files were closed meanwhile."""
        batch = a_batch([self.now])
        append(self.log, batch, epoch=self.epoch, now_ms=self.now)
        self.batches.append(Stored(bytes(batch), (self.now,), self.epoch))
        self.files.fail_write_back()
        while closes and self.files.descriptors.close_some():
            pass
        with pytest.raises(DiskFailedError):
            self.log.sync_job(checkpoint=True).run()
        self.log.sync_failed()
        self.log.close()
        self.open(rewrite_tail=True)
        self.durable = len(self.batches)
        self.check_everything()


TestShortLogModel = ShortLogModel.TestCase
TestShortLogModel.settings = settings(max_examples=max(EXAMPLES // 5, 1), stateful_step_count=30)
