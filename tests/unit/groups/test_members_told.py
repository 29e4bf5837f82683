"""What members tell of themselves is bounded: by the group, and where it is read."""

from time import process_time

import pytest
from tests.unit.groups.lab import RANGE, Lab

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_MEMBER_BYTES, GROUP_MEMBERS_RECORDS_MAX, SUBSCRIBED_TOPICS_MAX
from penstock.groups.classic.states import EMPTY, PREPARING
from penstock.groups.classic.subscription import subscribed_topics

RECORD_BYTES = 10_000
LONG = (("range", bytes(RECORD_BYTES)),)


def test_a_group_takes_members_until_they_told_too_much() -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    tickets = [lab.ask(protocols=LONG) for _ in range(GROUP_MEMBERS_RECORDS_MAX + 3)]
    refused = [ticket for ticket in tickets if ticket in lab.replies]
    assert [lab.joined(ticket).error for ticket in refused] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    assert len(lab.group.members) == GROUP_MEMBERS_RECORDS_MAX - 1
    # Somebody who says little still finds room.
    lab.ask(protocols=RANGE)
    assert len(lab.group.members) == GROUP_MEMBERS_RECORDS_MAX


def test_members_that_tell_nothing_take_room_all_the_same() -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    tickets = [lab.ask(protocols=RANGE) for _ in range(100)]
    refused = [ticket for ticket in tickets if ticket in lab.replies]
    assert {lab.joined(ticket).error for ticket in refused} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    most = GROUP_MEMBERS_RECORDS_MAX * RECORD_BYTES // GROUP_MEMBER_BYTES
    assert most / 2 < len(lab.group.members) <= most
    member_id = next(iter(lab.group.members))
    assert lab.ask(member_id, protocols=RANGE) not in lab.replies, "who is there may join again"


def test_one_member_alone_may_not_tell_too_much() -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    ticket = lab.ask(protocols=(("range", bytes(GROUP_MEMBERS_RECORDS_MAX * RECORD_BYTES)),))
    assert lab.joined(ticket).error is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("members", [1, 2])
def test_who_is_refused_when_it_tells_more_leaves_its_partitions_to_the_others(members: int) -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    first, *others = lab.stable(members)
    ticket = lab.ask(first, protocols=(("range", bytes(GROUP_MEMBERS_RECORDS_MAX * RECORD_BYTES)),))
    assert lab.joined(ticket).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(lab.group.members) == others
    assert lab.group.state is (PREPARING if others else EMPTY)
    for member in others:
        assert lab.heartbeat(member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_protocols_with_short_names_count_as_what_they_take() -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    ticket = lab.ask(protocols=tuple((f"{number:x}", b"") for number in range(1000)))
    assert lab.joined(ticket).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_with_many_protocols_hold_up_nobody_when_they_are_chosen_from() -> None:
    lab = Lab(record_bytes_max=100_000_000)
    common = tuple((f"{number:x}", b"") for number in range(9000))
    for member in range(2):
        own = tuple((f"{member}-{number:x}", b"") for number in range(9000))
        ticket = lab.ask(protocols=own + common)
    began = process_time()
    lab.pass_time(10)
    assert lab.joined(ticket).protocol in dict(common)
    assert process_time() - began < 0.5


def test_many_members_that_leave_hold_up_nobody() -> None:
    lab = Lab(record_bytes_max=100_000_000, members_max=10_000)
    for member in range(2000):
        lab.ask(protocols=(*RANGE, *((f"{member}-{number}", b"") for number in range(30))))
    assert len(lab.group.members) == 2000
    began = process_time()
    lab.pass_time(120)
    assert not lab.group.members
    assert process_time() - began < 0.3


def test_what_a_group_was_told_is_counted_and_forgotten() -> None:
    lab = Lab(record_bytes_max=RECORD_BYTES)
    first, second = lab.stable(2, static=True)
    before = lab.group.told_bytes
    lab.ask(first, protocols=LONG, instance_id=lab.group.members[first].instance_id)
    assert lab.group.told_bytes == before + len(LONG[0][1]) - len(RANGE[0][1])
    lab.ask(instance_id=lab.group.members[second].instance_id)  # takes over
    lab.leave(*[(member.id, member.instance_id) for member in list(lab.group.members.values())])
    assert not lab.group.members
    assert lab.group.told_bytes == 0


def test_a_subscription_to_too_many_topics_is_not_read() -> None:
    subscription = (
        b"\x00\x00" + (SUBSCRIBED_TOPICS_MAX).to_bytes(4, "big") + b"\x00\x01t" * SUBSCRIBED_TOPICS_MAX
    )
    more = (
        b"\x00\x00"
        + (SUBSCRIBED_TOPICS_MAX + 1).to_bytes(4, "big")
        + b"\x00\x01t" * (SUBSCRIBED_TOPICS_MAX + 1)
    )
    assert subscribed_topics([subscription, subscription]) == {"t"}
    assert subscribed_topics([subscription, more]) is None
