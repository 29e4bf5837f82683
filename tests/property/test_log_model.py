"""The log equals a list of batches, whatever happens to it and to the machine below it."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, read, sync

from penstock.records.batch import read_header
from penstock.storage.log import Log
from penstock.testing.mem_files import MemFiles


class LogModel(RuleBasedStateMachine):
    """Runs a log beside `self.batches`, the list of what it should hold."""

    log: Log

    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([300, 1000, 4000]))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.rng = random.Random(seed)
        self.settings = Settings(
            segment_bytes=segment_bytes, index_interval_bytes=self.rng.choice([0, 200, 4096])
        )
        self.files = MemFiles(seed)
        self.batches: list[bytes] = []
        self.durable = 0
        self.log = opened(self.files, self.settings).log

    @rule(records=st.integers(1, 5), padding=st.integers(0, 200))
    def append(self, records: int, padding: int) -> None:
        batch = a_batch([NOW_MS] * records, padding=padding)
        append(self.log, batch)
        self.batches.append(bytes(batch))

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        sync(self.log, checkpoint=checkpoint)
        self.durable = len(self.batches)

    @rule()
    def kill(self) -> None:
        self.files = self.files.kill()
        self.log = opened(self.files, self.settings).log
        self.durable = len(self.batches)

    @rule()
    def power_cut(self) -> None:
        self.files = self.files.crash(self.rng)
        self.log = opened(self.files, self.settings).log
        ends = [0] + [read_header(batch).next_offset for batch in self.batches]
        assert self.log.end_offset in ends[self.durable :]
        del self.batches[ends.index(self.log.end_offset) :]
        self.durable = len(self.batches)

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert self.log.end_offset == (read_header(self.batches[-1]).next_offset if self.batches else 0)
        for batch in self.batches:
            header = read_header(batch)
            for offset in range(header.base_offset, header.next_offset):
                assert read(self.log, offset, size_max=1) == batch


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
