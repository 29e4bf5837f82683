"""Whose log is of no use to its leader is sent back to the beginning, and nobody else."""

from dataclasses import replace
from math import inf

import pytest
from tests.unit.replication.test_leading import THREE, leading

from penstock.coordination.nodes import PartitionState
from penstock.replication.leading import Course, Leading

OWN = range(40)
EPOCH = 4
NO_EPOCH = -1


def course(one: Leading, replica: int, offset: int, tombstones: int, epoch: int = EPOCH) -> Course:
    return one.course(replica, offset, epoch, OWN, tombstones)


def test_a_follower_behind_tombstones_that_went_begins_anew_once() -> None:
    one = leading(replace(THREE, isr=(1, 2)))
    assert course(one, 3, 20, 30) is Course.BEGIN_ANEW
    assert course(one, 3, 30, 30) is Course.GO_ON  # it has had them all
    assert course(one, 3, 0, 30) is Course.GO_ON  # it begins
    assert course(one, 3, 20, 30) is Course.GO_ON  # and is on its way
    assert course(one, 3, 20, 31) is Course.BEGIN_ANEW  # more of them went before it got there
    assert course(one, 2, 20, 30) is Course.GO_ON  # in sync


def test_one_that_has_all_there_is_goes_on_wherever_the_mark_is() -> None:
    one = leading(replace(THREE, isr=(1, 2)))
    assert course(one, 3, 40, 100) is Course.GO_ON
    assert course(one, 3, 39, 100) is Course.BEGIN_ANEW


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (replace(THREE, isr=(1,), eligible=(3,)), Course.GO_ON),
        (
            replace(THREE, isr=(1,), suspects=(3,)),
            Course.WAIT,
        ),  # until the controller knows that somebody leads
        (replace(THREE, isr=(1,)), Course.BEGIN_ANEW),
    ],
    ids=["eligible", "suspect", "neither"],
)
@pytest.mark.parametrize(("epoch", "tombstones"), [(EPOCH, 30), (NO_EPOCH, 0)], ids=["missed", "astray"])
def test_nobody_who_may_lead_is_sent_back(
    state: PartitionState, expected: Course, epoch: int, tombstones: int
) -> None:
    assert course(leading(state), 3, 20, tombstones, epoch) is expected


def test_nobody_is_sent_back_whom_a_proposal_may_let_in() -> None:
    one = leading(replace(THREE, isr=(1, 2)))
    one.propose((1, 2, 3), 6)
    assert course(one, 3, 20, 30) is Course.GO_ON
    one.pending = replace(one.propose((1, 2), 6), also=(3,))
    assert course(one, 3, 20, 30) is Course.GO_ON


def test_an_empty_log_begins_where_its_leaders_does() -> None:
    """Nothing tells whether what lay before it is of the same history."""
    one = leading(replace(THREE, isr=(1, 2)))
    assert course(one, 3, 20, 0, NO_EPOCH) is Course.BEGIN_ANEW
    assert course(one, 3, 50, 0, NO_EPOCH) is Course.BEGIN_ANEW  # behind our end
    assert course(one, 3, 0, 0, NO_EPOCH) is Course.GO_ON
    assert course(one, 3, 20, 0) is Course.GO_ON


def test_tombstones_wait_for_followers_that_are_on_their_way() -> None:
    one = leading()
    assert one.lowest_end_since(0.5) == inf
    one.fetched(2, 7, 20, 40, 1.0)
    one.fetched(3, 7, 10, 40, 0.1)
    assert one.lowest_end_since(0.5) == 20
