"""Whose log is of no use to its leader is sent back to the beginning, and nobody else."""

from dataclasses import replace
from math import inf

import pytest
from tests.unit.replication.test_leading import THREE, leading

from penstock.coordination.nodes import PartitionState
from penstock.replication.leading import FetchVerdict, Leading

OWN = range(40)
EPOCH = 4
NO_EPOCH = -1


def verdict(leader: Leading, replica: int, offset: int, tombstones: int, epoch: int = EPOCH) -> FetchVerdict:
    return leader.verdict(replica, offset, epoch, OWN, tombstones)


def test_a_follower_behind_tombstones_that_went_begins_anew_once() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    assert verdict(leader, 3, 20, 30) is FetchVerdict.BEGIN_ANEW
    assert verdict(leader, 3, 30, 30) is FetchVerdict.GO_ON  # it has had them all
    assert verdict(leader, 3, 0, 30) is FetchVerdict.GO_ON  # it begins
    assert verdict(leader, 3, 20, 30) is FetchVerdict.GO_ON  # and is on its way
    assert verdict(leader, 3, 20, 31) is FetchVerdict.BEGIN_ANEW  # more of them went before it got there
    assert verdict(leader, 2, 20, 30) is FetchVerdict.GO_ON  # in sync


def test_one_that_has_all_there_is_goes_on_wherever_the_mark_is() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    assert verdict(leader, 3, 40, 100) is FetchVerdict.GO_ON
    assert verdict(leader, 3, 39, 100) is FetchVerdict.BEGIN_ANEW


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (replace(THREE, isr=(1,), eligible=(3,)), FetchVerdict.GO_ON),
        (
            replace(THREE, isr=(1,), suspects=(3,)),
            FetchVerdict.WAIT,
        ),  # until the controller knows that somebody leads
        (replace(THREE, isr=(1,)), FetchVerdict.BEGIN_ANEW),
    ],
    ids=["eligible", "suspect", "neither"],
)
@pytest.mark.parametrize(("epoch", "tombstones"), [(EPOCH, 30), (NO_EPOCH, 0)], ids=["missed", "astray"])
def test_nobody_who_may_lead_is_sent_back(
    state: PartitionState, expected: FetchVerdict, epoch: int, tombstones: int
) -> None:
    assert verdict(leading(state), 3, 20, tombstones, epoch) is expected


def test_nobody_is_sent_back_whom_a_proposal_may_let_in() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.propose((1, 2, 3), 6)
    assert verdict(leader, 3, 20, 30) is FetchVerdict.GO_ON
    leader.pending = replace(leader.propose((1, 2), 6), also=(3,))
    assert verdict(leader, 3, 20, 30) is FetchVerdict.GO_ON


def test_an_empty_log_begins_where_its_leaders_does() -> None:
    """Nothing tells whether what lay before it is of the same history."""
    leader = leading(replace(THREE, isr=(1, 2)))
    assert verdict(leader, 3, 20, 0, NO_EPOCH) is FetchVerdict.BEGIN_ANEW
    assert verdict(leader, 3, 50, 0, NO_EPOCH) is FetchVerdict.BEGIN_ANEW  # behind our end
    assert verdict(leader, 3, 0, 0, NO_EPOCH) is FetchVerdict.GO_ON
    assert verdict(leader, 3, 20, 0) is FetchVerdict.GO_ON


def test_tombstones_wait_for_followers_that_are_on_their_way() -> None:
    leader = leading()
    assert leader.lowest_end_since(0.5) == inf
    leader.fetched(2, 7, 20, 40, 1.0)
    leader.fetched(3, 7, 10, 40, 0.1)
    assert leader.lowest_end_since(0.5) == 20
