"""Offsets of transactions: who may commit them, when they count, and what they hold up meanwhile."""

import pytest
from tests.unit.groups.lab import Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.states import DEAD
from penstock.groups.decision import CoordinatorRecord, KnownTopic
from penstock.groups.offsets.commit import Committer, check_transactional_committer, offset_tombstone
from penstock.groups.offsets.pending import unstable_partitions
from penstock.groups.offsets.table import UNSTABLE, LiveOffsets, OffsetTable, StableOffsets
from penstock.groups.records.keys import OffsetKey, encode_group_key, encode_offset_key
from penstock.groups.records.offset_value import CommittedOffset, encode_offset_value
from penstock.groups.state import CoordinatorState, Portions

DAY_MS = 24 * 3600 * 1000
TOPIC_ID, OTHER_ID = b"t" * 16, b"u" * 16
A, B = 7, 8  # producers


def by(member_id: str = "", generation: int = -1, instance_id: str | None = None) -> Committer:
    return Committer("g", member_id, instance_id, generation, 3)


def commit(
    state: CoordinatorState, offset: int, producer_id: int = -1, *, topic: str = "t", group: str = "g"
) -> None:
    value = CommittedOffset(offset, metadata="note", topic_id=TOPIC_ID)
    state.apply(
        encode_offset_key(group, topic, 0), encode_offset_value(value), offset, producer_id=producer_id
    )


def committed(state: CoordinatorState, topic: str = "t") -> int | None:
    found = state.offsets.get("g", OffsetTable()).get(topic, 0)
    return None if found is None else found.offset


def is_unstable(state: CoordinatorState, topic: str = "t") -> bool:
    return (topic, 0) in state.pending.of_group("g")


def stored(state: CoordinatorState, portions: Portions) -> list[CoordinatorRecord]:
    records = []
    for portion in portions:
        records += portion
        for record in portion:
            state.apply(record.key, record.value)
    return records


# -- who may ------------------------------------------------------------------------------------------------


def test_members_are_checked_only_where_one_is_named() -> None:
    lab = Lab()
    leader, _ = lab.stable()
    assert check_transactional_committer(lab.group, by()) is ErrorCode.NONE, "as versions up to 2 say it"
    assert check_transactional_committer(lab.group, by(leader, 1)) is ErrorCode.NONE
    assert check_transactional_committer(lab.group, by(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert check_transactional_committer(lab.group, by(leader)) is ErrorCode.ILLEGAL_GENERATION
    assert check_transactional_committer(lab.group, by("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_transactional_committer(lab.group, by("", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_transactional_committer(lab.group, by(leader, 1, "i")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_instance_commits_nothing() -> None:
    lab = Lab()
    _, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    lab.ask(instance_id=instance)
    found = check_transactional_committer(lab.group, by(follower, 1, instance))
    assert found is ErrorCode.FENCED_INSTANCE_ID


def test_while_the_plan_is_made_a_transaction_commits_what_was_read_before() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    lab.ask(leader)
    lab.ask(follower)
    assert check_transactional_committer(lab.group, by(follower, 2)) is ErrorCode.NONE
    assert check_transactional_committer(lab.group, by(follower, 1)) is ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_is_not_there_is_made_for_those_without_a_generation() -> None:
    assert check_transactional_committer(None, by()) is ErrorCode.NONE
    assert check_transactional_committer(None, by("m", 3)) is ErrorCode.ILLEGAL_GENERATION
    assert check_transactional_committer(ClassicGroup("g"), by("m")) is ErrorCode.NONE, "it is empty"
    assert check_transactional_committer(ClassicGroup("g"), by("m", 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    dead = ClassicGroup("g", state=DEAD)
    assert check_transactional_committer(dead, by()) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- when they count ----------------------------------------------------------------------------------------


def test_they_count_when_the_transaction_is_committed() -> None:
    state = CoordinatorState()
    commit(state, 1)
    commit(state, 2, A)
    assert (committed(state), is_unstable(state)) == (1, True)
    state.transaction_ended(B, committed=True)
    assert (committed(state), is_unstable(state)) == (1, True), "another producer's"
    state.transaction_ended(A, committed=True)
    assert (committed(state), is_unstable(state)) == (2, False)
    state.transaction_ended(A, committed=True)
    assert committed(state) == 2


def test_they_are_gone_when_it_is_aborted() -> None:
    state = CoordinatorState()
    commit(state, 1)
    commit(state, 2, A)
    state.transaction_ended(A, committed=False)
    assert (committed(state), is_unstable(state)) == (1, False)


def test_a_later_commit_is_not_overtaken_by_a_transaction_that_ends_later() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2)
    assert is_unstable(state), "until its transaction ends, as in Kafka"
    state.transaction_ended(A, committed=True)
    assert (committed(state), is_unstable(state)) == (2, False)


def test_a_transaction_that_goes_on_after_a_later_commit_counts_again() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2)
    commit(state, 3, A)
    state.transaction_ended(A, committed=True)
    assert committed(state) == 3


@pytest.mark.parametrize("first", [A, B])
def test_of_two_transactions_the_later_record_wins_whichever_ends_first(first: int) -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2, B)
    for producer_id in (first, A + B - first):
        state.transaction_ended(producer_id, committed=True)
    assert committed(state) == 2


def test_an_aborted_record_overtakes_nothing() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2, B)
    state.transaction_ended(B, committed=False)
    state.transaction_ended(A, committed=True)
    assert committed(state) == 1


# -- what they hold up --------------------------------------------------------------------------------------


def test_a_tombstone_takes_pending_offsets_with_it() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2, B)
    state.apply(*offset_tombstone("g", "t", 0))
    assert not is_unstable(state)
    assert not state.groups
    commit(state, 3, A)
    for producer_id in (A, B):
        state.transaction_ended(producer_id, committed=True)
    assert committed(state) == 3


def test_a_deleted_group_loses_pending_offsets_by_tombstones_too() -> None:
    state = CoordinatorState()
    commit(state, 1)
    commit(state, 2, A)
    commit(state, 3, A, topic="u")
    assert state.offset_count("g") == 3
    assert state.check_deletable("g") is ErrorCode.NONE
    records = stored(state, state.tombstones_of_group("g"))
    group = CoordinatorRecord(encode_group_key("g"), None)
    assert records == [offset_tombstone("g", "t", 0), offset_tombstone("g", "u", 0), group]
    state.transaction_ended(A, committed=True)
    assert (state.groups, state.offsets, state.size_bytes) == ({}, {}, 0)


def test_a_group_is_not_forgotten_with_its_record_while_offsets_are_pending() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    state.apply(encode_group_key("g"), None)
    assert state.groups["g"].is_simple
    state.transaction_ended(A, committed=True)
    assert committed(state) == 1


def test_a_group_whose_only_offsets_were_aborted_is_gone() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    assert "g" in state.groups
    state.transaction_ended(A, committed=False)
    assert (state.groups, state.size_bytes) == ({}, 0)


def test_nothing_expires_that_a_transaction_is_about_to_renew() -> None:
    state = CoordinatorState()
    commit(state, 1)
    commit(state, 2, topic="u")
    commit(state, 3, A)
    assert stored(state, state.expire_group("g", DAY_MS, DAY_MS)) == [offset_tombstone("g", "u", 0)]
    assert (committed(state), is_unstable(state)) == (1, True)
    state.transaction_ended(A, committed=False)
    assert stored(state, state.expire_group("g", DAY_MS, DAY_MS)) == [offset_tombstone("g", "t", 0)]
    assert not state.groups


def test_a_group_with_nothing_but_pending_offsets_does_not_expire() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    assert stored(state, state.expire_group("g", DAY_MS, 100 * DAY_MS)) == []
    assert is_unstable(state)


@pytest.mark.parametrize("names", [None, ["t"]])
def test_pending_offsets_of_a_topic_that_is_gone_go_with_it(names: list[str] | None) -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    commit(state, 2, A, topic="stays")
    known = {"stays": KnownTopic(TOPIC_ID, 1)}
    assert stored(state, state.hear_of_topics(known.get, names)) == [offset_tombstone("g", "t", 0)]
    state.transaction_ended(A, committed=True)
    assert (committed(state), committed(state, "stays")) == (None, 2)


def test_pending_offsets_of_a_topic_that_was_made_again_are_of_another_one() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    assert stored(state, state.hear_of_topics(lambda _: KnownTopic(TOPIC_ID, 1))) == []
    assert stored(state, state.hear_of_topics(lambda _: KnownTopic(OTHER_ID, 1))) == [
        offset_tombstone("g", "t", 0)
    ]
    assert not is_unstable(state)


def test_what_is_of_another_topic_of_the_name_is_noticed_before_a_commit() -> None:
    key = OffsetKey("g", "t", 0)
    for producer_id in (-1, A):
        state = CoordinatorState()
        assert not state.stale(key, TOPIC_ID)
        commit(state, 1, producer_id)
        assert not state.stale(key, TOPIC_ID)
        assert state.stale(key, OTHER_ID)


def test_their_memory_counts_and_is_given_back() -> None:
    state = CoordinatorState()
    commit(state, 1)
    before = state.size_bytes
    commit(state, 2, A)
    taken = state.size_bytes
    assert taken > before + len("note")
    commit(state, 3, A)
    assert state.size_bytes == taken, "in place of the one before"
    commit(state, 4)
    assert before < state.size_bytes < taken, "what is overtaken has no metadata any more"
    state.transaction_ended(A, committed=True)
    assert state.size_bytes == before


def test_there_is_room_for_what_is_pending_when_it_is_committed() -> None:
    state = CoordinatorState()
    commit(state, 1, A)
    before = state.size_bytes
    state.transaction_ended(A, committed=True)
    assert committed(state) == 1
    assert state.size_bytes <= before


# -- reading ------------------------------------------------------------------------------------------------


def test_who_wants_stable_offsets_is_told_which_are_not() -> None:
    state = CoordinatorState()
    commit(state, 1)
    commit(state, 2, topic="u")
    commit(state, 3, A)
    commit(state, 4, A, topic="v")
    unstable = unstable_partitions(state.pending.of_group("g"))
    live = LiveOffsets(state.offsets["g"], lambda _: KnownTopic(TOPIC_ID, 1))
    gone = LiveOffsets(state.offsets["g"], lambda _: None)
    for table in (StableOffsets(state.offsets["g"], unstable), StableOffsets(live, unstable)):
        assert sorted(table.topics) == ["t", "u", "v"]
        assert table.get("t", 0) is UNSTABLE
        assert table.get("v", 0) is UNSTABLE
        assert (table.get("u", 0) or UNSTABLE).offset == 2
        assert table.copy(None).get("v", 0) is UNSTABLE
        assert table.copy([("t", [0, 1])]).of_topic("t") == {0: UNSTABLE}
        assert [list(table.listed(topic)) for topic in "tuv"] == [[0], [0], [0]]
    assert StableOffsets(gone, unstable).get("u", 0) is None
    assert committed(state) == 1, "what others read is what it was"
