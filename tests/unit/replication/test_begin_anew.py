"""Who may have missed tombstones is sent back to the beginning, and nobody else."""

from dataclasses import replace
from math import inf

from tests.unit.replication.test_leading import THREE, leading


def test_a_follower_behind_tombstones_that_went_begins_anew_once() -> None:
    one = leading(replace(THREE, isr=(1, 2)))
    assert one.must_begin_anew(3, 20, 0, 30)
    assert not one.must_begin_anew(3, 30, 0, 30)  # it has had them all
    assert not one.must_begin_anew(3, 0, 0, 30)  # it begins
    assert not one.must_begin_anew(3, 20, 0, 30)  # and is on its way
    assert one.must_begin_anew(3, 20, 0, 31)  # more of them went before it got there
    assert not one.must_begin_anew(2, 20, 0, 30)  # in sync


def test_tombstones_wait_for_followers_that_are_on_their_way() -> None:
    one = leading()
    assert one.lowest_end_since(0.5) == inf
    one.fetched(2, 7, 20, 40, 1.0)
    one.fetched(3, 7, 10, 40, 0.1)
    assert one.lowest_end_since(0.5) == 20
