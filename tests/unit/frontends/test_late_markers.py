"""A marker comes once more, late: the producer's next transaction is none of its business."""

import pytest
from tests.unit.frontends.group_requests import fetch, machine, prepared
from tests.unit.frontends.transactional_commits import (
    NOTHING,
    PRODUCER,
    UNSTABLE,
    commit_beside_marker,
    fetch_stable,
    serving,
    shard,
    txn_commit,
)

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.replication.transactions import MarkerToWrite


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_late_repeat_of_a_marker_does_not_end_the_next_transaction(turns: int) -> None:
    """Nor in the turn of the loop in which that one commits its first offset, which is not written yet."""
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        marker = MarkerToWrite(PRODUCER, 1, True, 0, 2)  # of the second kind: it raises the epoch
        assert await txn_commit(asked, 5, offset=5) == 0
        write = asked.services.marker_writer.write
        assert await write(OFFSETS_TOPIC, shard(asked).partition.index, marker) is ErrorCode.NONE
        assert await fetch_stable(asked) == [(0, 5, "txn", 0), NOTHING]
        told = await commit_beside_marker(asked, marker, offset=9, turns=turns)
        assert told is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await fetch(asked) == [(0, 5, "txn", 0), NOTHING]
        assert await fetch_stable(asked) == [UNSTABLE, NOTHING]
