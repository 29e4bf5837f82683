"""Who may commit, what expires, and what the records say afterwards."""

from itertools import chain

import pytest
from tests.unit.groups.lab import Lab

from penstock.coordination.nodes import Removed
from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.decision import KnownTopic, Now
from penstock.groups.offsets.commit import Committer, check_committer, expiry
from penstock.groups.offsets.table import LiveOffsets, OffsetTable
from penstock.groups.partitioning import java_hash, partition_of
from penstock.groups.records.keys import encode_offset_key
from penstock.groups.records.offset_value import (
    NO_EXPIRY,
    CommittedOffset,
    decode_offset_value,
    encode_offset_value,
)
from penstock.groups.state import CoordinatorState

DAY_MS = 24 * 3600 * 1000


def committer(
    member_id: str = "", generation: int = -1, instance_id: str | None = None, version: int = 9
) -> Committer:
    return Committer("g", member_id, instance_id, generation, version)


def test_members_commit_in_their_generation() -> None:
    lab = Lab()
    leader, _ = lab.stable()
    assert check_committer(lab.group, committer(leader, 1)) is ErrorCode.NONE
    assert check_committer(lab.group, committer(leader, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert check_committer(lab.group, committer("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_committer(lab.group, committer(leader, -1)) is ErrorCode.ILLEGAL_GENERATION
    assert check_committer(lab.group, committer()) is ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"


def test_a_dead_member_cannot_commit() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    lab.pass_time(11, alive=(leader,))
    assert check_committer(lab.group, committer(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_go_on_while_the_group_gathers_and_wait_while_the_plan_is_made() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    joining = lab.ask(leader)
    assert check_committer(lab.group, committer(follower, 1)) is ErrorCode.NONE
    lab.ask(follower)
    assert lab.joined(joining).generation == 2
    assert check_committer(lab.group, committer(follower, 2)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert check_committer(lab.group, committer(follower, 1)) is ErrorCode.ILLEGAL_GENERATION


def test_a_fenced_static_member_cannot_commit() -> None:
    lab = Lab()
    _, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    lab.ask(instance_id=instance)
    assert check_committer(lab.group, committer(follower, 1, instance)) is ErrorCode.FENCED_INSTANCE_ID


def test_without_members_only_those_without_a_generation_commit() -> None:
    assert check_committer(None, committer()) is ErrorCode.NONE
    assert check_committer(None, committer("m", 3, version=8)) is ErrorCode.ILLEGAL_GENERATION
    assert check_committer(None, committer("m", 3, version=9)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert check_committer(ClassicGroup("g"), committer()) is ErrorCode.NONE
    assert check_committer(ClassicGroup("g"), committer("m", 3)) is ErrorCode.UNKNOWN_MEMBER_ID


def state_with(group: ClassicGroup, **committed_ms: int) -> CoordinatorState:
    state = CoordinatorState()
    state.groups["g"] = group
    for topic, at_ms in committed_ms.items():
        state.offsets_of("g").set(topic, 0, CommittedOffset(5, committed_ms=at_ms))
    return state


def remaining(state: CoordinatorState, now_ms: int) -> list[str]:
    for record in chain.from_iterable(state.expire_group("g", DAY_MS, now_ms)):
        state.apply(record.key, record.value)
    return sorted(state.offsets_of("g").topics) if "g" in state.groups else ["(gone)"]


def test_a_simple_groups_offsets_expire_each_by_its_age() -> None:
    state = state_with(ClassicGroup("g"), old=0, young=DAY_MS)
    assert remaining(state, DAY_MS + 1) == ["young"]
    assert remaining(state, 2 * DAY_MS) == ["(gone)"]


def test_an_empty_groups_offsets_expire_when_it_has_been_empty_for_long() -> None:
    lab = Lab()
    ids = lab.stable()
    state = state_with(lab.group, t=0)
    assert remaining(state, 100 * DAY_MS) == ["t"], "members read it"
    lab.leave(*((member_id, None) for member_id in ids))
    ended_ms = lab.group.state_since_ms
    assert remaining(state, ended_ms + DAY_MS - 1) == ["t"]
    assert remaining(state, ended_ms + DAY_MS) == ["(gone)"]


def test_a_group_at_work_loses_offsets_of_topics_nobody_reads() -> None:
    lab = Lab()
    lab.stable()
    state = state_with(lab.group, t=0, unread=0)
    assert remaining(state, DAY_MS) == ["t"]


def test_a_clients_own_retention_counts_instead() -> None:
    assert expiry(-1, 1000) == NO_EXPIRY
    state = state_with(ClassicGroup("g"))
    state.offsets_of("g").set("t", 0, CommittedOffset(5, committed_ms=0, expires_ms=expiry(50 * DAY_MS, 0)))
    assert remaining(state, 10 * DAY_MS) == ["t"]
    assert remaining(state, 50 * DAY_MS) == ["(gone)"]


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62, 0, -2, -(2**63)])
def test_any_retention_a_client_may_ask_for_can_be_stored(retention_ms: int) -> None:
    value = CommittedOffset(5, committed_ms=1000, expires_ms=expiry(retention_ms, 1000))
    assert decode_offset_value(encode_offset_value(value)) == value
    assert (value.expires_ms > 100 * DAY_MS) == (retention_ms > 0)


def test_a_group_that_somebody_is_about_to_join_is_kept() -> None:
    lab = Lab()
    lab.ask(id_required=True)
    state = state_with(lab.group)
    assert remaining(state, 100 * DAY_MS) == []


def test_a_group_whose_only_commit_was_refused_is_forgotten() -> None:
    state = state_with(ClassicGroup("g"))
    assert not state.offsets_of("g")
    for record in chain.from_iterable(state.expire_group("g", DAY_MS, 0)):
        state.apply(record.key, record.value)
    assert not state.groups
    assert not state.offsets


def test_replay_arrives_where_the_records_end() -> None:
    state = CoordinatorState()
    value = CommittedOffset(7, 2, "note", 3)
    for each in (CommittedOffset(3), value):
        assert state.apply(encode_offset_key("g", "t", 1), encode_offset_value(each))
    assert state.offsets_of("g").get("t", 1) == value
    assert state.groups["g"].is_simple
    for record in chain.from_iterable(state.hear_of_topics(lambda _: None, ["t", "another"])):
        state.apply(record.key, record.value)
    assert not state.groups
    assert not state.offsets


def test_a_deleted_group_is_forgotten_with_its_offsets() -> None:
    lab = Lab()
    ids = lab.stable()
    state = state_with(lab.group, t=0)
    assert state.check_deletable("g") is ErrorCode.NON_EMPTY_GROUP
    lab.leave(*((member_id, None) for member_id in ids))
    assert state.check_deletable("g") is ErrorCode.NONE
    for record in chain.from_iterable(state.tombstones_of_group("g")):
        state.apply(record.key, record.value)
    assert not state.groups
    assert not state.offsets
    assert state.check_deletable("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_records_of_kinds_from_the_future_are_skipped() -> None:
    state = CoordinatorState()
    assert not state.apply(b"\x00\x09whatever", b"\x00\x00")
    assert not state.groups


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("polygenelubricants", -(2**31)), ("äß𝄞", None)],
)
def test_the_hash_is_javas(text: str, expected: int | None) -> None:
    units = text.encode("utf-16-be")
    by_hand = 0
    for at in range(0, len(units), 2):
        by_hand = 31 * by_hand + int.from_bytes(units[at : at + 2], "big")
    by_hand = (by_hand + 2**31) % 2**32 - 2**31
    assert java_hash(text) == by_hand
    if expected is not None:
        assert java_hash(text) == expected
    assert 0 <= partition_of(text, 50) < 50


def test_now_is_two_clocks() -> None:
    assert Now(1.5, 9).after_ms(500) == 2.0


def bound(state: CoordinatorState, *names: str, **topics: tuple[bytes, int]) -> list[tuple[str, int]]:
    """What is left, once offsets are held against the topics there are."""
    known = {name: KnownTopic(*topic) for name, topic in topics.items()}
    for record in chain.from_iterable(state.hear_of_topics(known.get, names or None)):
        state.apply(record.key, record.value)
    return sorted((topic, partition) for topic, partition, _ in state.offsets_of("g").all())


def test_an_offset_is_of_the_topic_that_it_was_committed_for_and_of_no_other_of_that_name() -> None:
    state, old, new = CoordinatorState(), b"o" * 16, b"n" * 16
    for topic, partition in (("t", 0), ("t", 3), ("u", 0)):
        state.offsets_of("g").set(topic, partition, CommittedOffset(5, topic_id=old))
    assert bound(state, "u", t=(new, 4), u=(old, 1)) == [("t", 0), ("t", 3), ("u", 0)], (
        "others are not looked at"
    )
    assert bound(state, t=(old, 4), u=(old, 1)) == [("t", 0), ("t", 3), ("u", 0)]
    assert bound(state, t=(old, 3), u=(old, 1)) == [("t", 0), ("u", 0)], "a partition that is gone"
    assert bound(state, t=(new, 3), u=(old, 1)) == [("u", 0)], "made again"
    assert bound(state) == []


def test_offsets_of_older_brokers_are_of_the_topic_that_has_the_name_when_they_are_loaded() -> None:
    state = CoordinatorState()
    state.offsets_of("g").set("t", 0, CommittedOffset(5))
    assert bound(state, t=(b"o" * 16, 1)) == [("t", 0)]
    assert bound(state, t=(b"n" * 16, 1)) == []
    state.offsets_of("g").set("t", 0, CommittedOffset(5))
    assert list(state.hear_of_topics({}.get)) != []  # not stored yet
    assert bound(state, t=(b"n" * 16, 1)) == [], "the topic was made too late"


@pytest.mark.parametrize(
    ("offset", "partitions", "is_listed"),
    [(4, 1, False), (10, 1, False), (11, 1, True), (4, 2, True), (11, 2, True)],
)
@pytest.mark.parametrize("topic_id", [b"o" * 16, bytes(16)], ids=["with its id", "of an older broker"])
def test_what_was_committed_in_a_removed_partition_is_kept_for_the_next_of_its_number(
    offset: int, partitions: int, is_listed: bool, topic_id: bytes
) -> None:
    """Listed when there is one again; what lies beyond its end is of one that is not known here yet."""
    state, known = CoordinatorState(), KnownTopic(b"o" * 16, partitions, {1: Removed(8, 10, 3)})
    state.offsets_of("g").set("t", 1, CommittedOffset(offset, topic_id=topic_id))
    assert list(chain.from_iterable(state.hear_of_topics({"t": known}.get))) == []
    live = LiveOffsets(state.offsets_of("g"), {"t": known}.get)
    assert (1 in live.listed("t")) == (1 in live.copy(None).of_topic("t")) == is_listed
    assert live.get("t", 1) is not None, "who names it may know more"
    assert LiveOffsets(state.offsets_of("g"), {"t": known._replace(id=b"n" * 16)}.get).get("t", 1) is None


@pytest.mark.parametrize(
    ("offset", "partitions", "told"),
    [(7, 2, (7, 2)), (8, 2, (10, -1)), (9, 2, (10, -1)), (10, 2, (10, 2)), (11, 2, (11, 2)), (8, 1, (8, 2))],
)
def test_who_has_read_all_of_a_removed_partition_stands_where_the_next_of_its_number_begins(
    offset: int, partitions: int, told: tuple[int, int]
) -> None:
    """What lies before it is nowhere for readers: librdkafka would tell no end there, and it would count as unread."""
    state, known = CoordinatorState(), KnownTopic(b"o" * 16, partitions, {1: Removed(8, 10, 3)})
    state.offsets_of("g").set("t", 1, CommittedOffset(offset, leader_epoch=2, topic_id=b"o" * 16))
    found = LiveOffsets(state.offsets_of("g"), {"t": known}.get).get("t", 1)
    assert found is not None
    assert (found.offset, found.leader_epoch) == told


def test_what_was_committed_in_a_partition_that_never_was_goes() -> None:
    state, known = CoordinatorState(), KnownTopic(b"o" * 16, 1)
    state.offsets_of("g").set("t", 1, CommittedOffset(5, topic_id=b"o" * 16))
    tombstones = list(chain.from_iterable(state.hear_of_topics({"t": known}.get)))
    assert tombstones == [(encode_offset_key("g", "t", 1), None)]


def test_what_is_given_up_takes_no_longer_where_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a group has anything left is asked for each of its tombstones."""
    state, count = CoordinatorState(), 300
    for number in range(count):
        state.apply(encode_offset_key("g", f"t{number}", 0), encode_offset_value(CommittedOffset(1)))
    looked_at = 0

    def counted(table: OffsetTable) -> int:
        nonlocal looked_at
        looked_at += len(table.topics)
        return sum(map(len, table.topics.values()))

    monkeypatch.setattr(OffsetTable, "__len__", counted)
    for number in range(count):
        assert "g" in state.groups
        state.apply(encode_offset_key("g", f"t{number}", 0), None)
    assert (state.groups, state.offsets, state.size_bytes) == ({}, {}, 0)
    assert looked_at <= count


def test_a_topic_whose_last_offset_went_is_gone() -> None:
    table = OffsetTable()
    assert not table
    table.set("t", 1, CommittedOffset(1))
    assert table
    table.remove("t", 0)
    assert table
    table.remove("t", 1)
    assert not table
    assert table.topics == {}
