"""A follower takes nothing over that lacks tombstones before it is written down, durably, that it may lack them."""

import pytest
from tests.unit.replication.test_begun_anew import Nobody
from tests.unit.services.maintenance.test_cleaner import DATA, Bench, run

from penstock.core.errors import DiskFailedError
from penstock.core.jobs import Jobs
from penstock.replication.following import Follower
from penstock.storage.compaction.checkpoint import load_cleaned
from penstock.storage.layout import CLEANER_FILE, partition_dir

COMMITTED = 50


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("rename", f"*{CLEANER_FILE}*"), ("sync_dir", str(partition_dir(DATA, "t", 0)))],
)
@pytest.mark.parametrize("gaps", [False, True])
def test_a_mark_that_may_not_be_durable_is_written_before_more_is_taken_over(
    operation: str, pattern: str, gaps: bool
) -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        log, follower = partition.log, Follower(Jobs(bench.loop, None), bench.clock, bench.group_commit)
        log.may_have_gaps = gaps
        bench.files.fail_next(operation, pattern, count=2)
        for _ in range(2):
            with pytest.raises(DiskFailedError):
                await follower._expect_gaps(partition, COMMITTED, Nobody())
            assert log.cleaned_in_doubt
        await follower._expect_gaps(partition, COMMITTED, Nobody())
        assert not log.cleaned_in_doubt
        known = load_cleaned(bench.files, log.directory, log.end_offset)
        assert (known, known.tombstones) == (log.cleaned, COMMITTED)

    run(story)
