"""What a leader makes of its followers' fetches: the high watermark, who is in sync, and proposals that got lost."""

from dataclasses import replace

from penstock.coordination.nodes import PartitionState
from penstock.replication.leading import UNKNOWN, Leading

THREE = PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=9)


def leading(state: PartitionState = THREE, min_isr: int = 2) -> Leading:
    return Leading(1, state, min_isr, 10, 0.0)


def test_the_high_watermark_is_the_lowest_end_in_sync() -> None:
    leader = leading()
    leader.fetched(2, 7, 30, 40, 1.0)
    assert leader.high_watermark(40) == UNKNOWN  # nobody knows yet what 3 has
    leader.fetched(3, 7, 20, 40, 1.0)
    assert leader.high_watermark(40) == 20
    assert leader.high_watermark(15) == 15  # our own end, where it must be durable


def test_it_stands_still_while_too_few_are_in_sync_or_anybody_is_only_eligible() -> None:
    alone = leading(replace(THREE, isr=(1,)))
    assert alone.high_watermark(40) == UNKNOWN
    assert alone.is_short
    lowered = leading(replace(THREE, isr=(1,), eligible=(2,)), min_isr=1)
    assert (
        lowered.high_watermark(40) == UNKNOWN
    )  # the minimum was lowered, but the controller does not know yet
    assert leading(replace(THREE, isr=(1,)), min_isr=1).high_watermark(40) == 40


def test_who_is_about_to_join_is_waited_for() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.fetched(2, 7, 40, 40, 1.0)
    leader.fetched(3, 8, 35, 40, 1.0)
    assert leader.high_watermark(40) == 40
    assert leader.may_join(3, 35, 0)
    leader.propose((1, 2, 3), 6)
    assert leader.high_watermark(40) == 35


def test_what_is_deleted_is_deleted_at_all_that_may_lead() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    assert leader.lowest_start(5) == UNKNOWN  # nobody knows yet what 2 has
    leader.fetched(2, 7, 40, 40, 1.0, 5)
    leader.fetched(3, 8, 40, 40, 1.0, 4)
    assert leader.lowest_start(5) == 5
    assert not leader.may_join(3, 35, 5)  # it would bring back what is deleted
    assert leader.may_join(3, 35, 4)
    leader.propose((1, 2, 3), 6)
    assert leader.lowest_start(5) == 4
    assert leading(replace(THREE, isr=(1,), eligible=(2,))).lowest_start(5) == UNKNOWN
    assert leading(replace(THREE, isr=(1,), suspects=(2,))).lowest_start(5) == UNKNOWN


def test_who_is_about_to_leave_is_waited_for_until_it_has() -> None:
    leader = leading()
    leader.fetched(2, 7, 40, 40, 1.0)
    leader.fetched(3, 7, 20, 40, 1.0)
    leader.propose((1, 2), 6)
    assert leader.high_watermark(40) == 20
    assert leader.committed(replace(THREE, isr=(1, 2), partition_epoch=10))
    assert leader.high_watermark(40) == 40


def test_a_refused_proposal_is_waited_for_while_it_may_still_arrive() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.fetched(2, 7, 40, 40, 1.0)
    leader.fetched(3, 8, 35, 40, 1.0)
    proposal = leader.propose((1, 2, 3), 6)
    proposal.unanswered = 1  # one request was never answered, the next one was refused
    assert leader.refused(6)
    assert leader.pending is not None
    assert leader.pending.members() == (1, 2)
    assert leader.high_watermark(40) == 35
    assert leader.committed(replace(THREE, isr=(1, 2), partition_epoch=10))
    assert leader.high_watermark(40) == 40


def test_a_refused_proposal_that_was_answered_is_forgotten() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.propose((1, 2, 3), 6)
    assert not leader.refused(6)
    assert leader.pending is None


def test_a_late_fetch_of_an_earlier_process_does_not_count() -> None:
    leader = leading()
    assert leader.fetched(2, 8, 20, 40, 1.0)
    assert not leader.fetched(2, 7, 40, 40, 2.0)
    assert leader.progress[2].end == 20


def test_laggards_by_time() -> None:
    leader = leading()
    leader.fetched(2, 7, 40, 40, 9.0)
    leader.fetched(3, 7, 20, 40, 9.0)
    assert leader.laggards(45, 10.0, 5.0) == [3]
    assert leader.laggards(45, 10.0, 50.0) == []
    leader.fetched(3, 7, 40, 60, 10.0)  # all there was when it asked before
    assert leader.laggards(60, 11.0, 5.0) == []


def test_too_many_records_behind_for_a_while_is_out_of_sync() -> None:
    leader = leading()
    leader.lag_records_max = 20
    assert leader.laggards(100, 9.0, 20.0) == []  # nobody has shown yet where it is
    for replica in (2, 3):
        leader.fetched(replica, 7, 80, 100, 9.0)
    assert leader.laggards(150, 10.0, 20.0) == []  # a burst
    leader.fetched(2, 7, 130, 150, 10.0)
    leader.fetched(3, 7, 129, 150, 10.0)
    assert leader.laggards(150, 19.0, 20.0) == []
    assert leader.laggards(150, 19.5, 20.0) == [3]
    leader.fetched(3, 7, 150, 170, 19.8)  # it asks often, has all there was the last time, and is near now
    assert leader.laggards(170, 20.0, 20.0) == []


def test_who_is_too_far_behind_does_not_come_in() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.lag_records_max = 20
    leader.fetched(3, 7, 30, 51, 1.0)
    assert not leader.may_join(3, 30, 0)
    leader.fetched(3, 7, 31, 51, 1.0)
    assert leader.may_join(3, 30, 0)


def test_only_copies_in_sync_count_for_who_may_lead_next_is_in_sync() -> None:
    leader = leading(replace(THREE, isr=(1, 2)))
    leader.fetched(3, 7, 41, 41, 1.0)
    assert leader.count_with(40, 41) == 1  # 2 would be elected, without it
    leader.fetched(2, 7, 41, 41, 1.0)
    assert leader.count_with(40, 41) == 2
    assert leader.count_with(40, 40) == 1
    leader.committed(replace(THREE, partition_epoch=10))
    assert leader.count_with(40, 41) == 3


def test_a_move_ends_when_all_that_stay_have_been_heard_since_they_are_in_sync() -> None:
    state = PartitionState(
        replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=9, removing=(3,)
    )
    leading = Leading(1, state, 2, 0, 0.0)
    assert leading.may_end_move
    assert not leading.heard_all
    leading.fetched(2, 7, 0, 0, 1.0)
    assert leading.heard_all
    leading.committed(replace(state, partition_epoch=10))
    assert not leading.heard_all, "that was before"
    assert not Leading(3, state, 2, 0, 0.0).may_end_move, "it goes itself: one that stays has to lead first"
    assert not Leading(1, replace(state, isr=(1, 3)), 2, 0, 0.0).may_end_move


def test_who_goes_does_not_come_back_in_where_all_that_stay_are_in_sync() -> None:
    state = PartitionState(
        replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=9, removing=(3,)
    )
    leading = Leading(1, state, 2, 0, 0.0)
    leading.fetched(3, 7, 0, 0, 1.0)
    assert not leading.may_join(3, 0, 0)
    short = Leading(1, replace(state, isr=(1,)), 2, 0, 0.0)
    short.fetched(3, 7, 0, 0, 1.0)
    assert short.may_join(3, 0, 0)
