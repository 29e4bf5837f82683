"""What `penstock why` makes of a group, from hand-made looks at it."""

from collections.abc import Sequence

import pytest

from penstock.client.admin.admin import Retries
from penstock.client.admin.group_info import GroupInfo, GroupOffset, MemberInfo
from penstock.diagnosis.findings import Finding, Level
from penstock.diagnosis.group import group_findings
from penstock.diagnosis.group_watch import Watch

SECONDS = 2.0


def member(name: str, *partitions: int, topic: str = "orders") -> MemberInfo:
    return MemberInfo(
        name, f"client-{name}", "/10.0.0.1", None, tuple((topic, index) for index in partitions)
    )


def offset(
    partition: int, committed: int | None, latest: int, by: str | None, earliest: int = 0
) -> GroupOffset:
    return GroupOffset("orders", partition, committed, latest, by, earliest)


def look(
    members: Sequence[MemberInfo],
    offsets: Sequence[GroupOffset],
    state: str = "stable",
    **more: tuple[str, ...],
) -> GroupInfo:
    return GroupInfo("billing", state, 1, "range", tuple(members), tuple(offsets), **more)


def findings(*looks: GroupInfo) -> list[Finding]:
    return group_findings(Watch(looks, SECONDS))


def finding_of(found: list[Finding], check: str) -> Finding:
    (only,) = (finding for finding in found if finding.check == check)
    return only


def test_a_group_without_lag_is_well() -> None:
    same = look([member("a", 0)], [offset(0, 10, 10, "a")])
    found = findings(same, same)
    assert {finding.level for finding in found} == {Level.OK}
    assert finding_of(found, "lag").found == "none; 0/s written, 0/s read"


def test_nobody_reads() -> None:
    empty = look([], [offset(0, 4, 10, None)], "empty")
    found = findings(empty, empty)
    assert (finding_of(found, "members").level, "6 offsets wait" in finding_of(found, "members").found) == (
        Level.FAIL,
        True,
    )
    idle = look([], [offset(0, 10, 10, None)], "empty")
    assert finding_of(findings(idle, idle), "members").level is Level.OK


@pytest.mark.parametrize(
    ("read_by", "advice"),
    [
        ([member("a", 0, 1, 2)], "up to 2 more"),
        ([member("a", 0), member("b", 1), member("c", 2)], "make the work faster"),
    ],
)
def test_falls_behind(read_by: list[MemberInfo], advice: str) -> None:
    owners = {index: reader.id for reader in read_by for _, index in reader.partitions}
    before = look(read_by, [offset(index, 100, 200, owners[index]) for index in range(3)])
    after = look(read_by, [offset(index, 120, 260, owners[index]) for index in range(3)])
    lag = finding_of(findings(before, after), "lag")
    assert (lag.level, lag.found) == (
        Level.WARN,
        "420, was 300: falls behind with 90/s written, 30/s read",
    )
    assert advice in lag.advice


def test_catches_up() -> None:
    before = look([member("a", 0)], [offset(0, 100, 1000, "a")])
    after = look([member("a", 0)], [offset(0, 400, 1100, "a")])
    found = findings(before, after)
    assert (
        finding_of(found, "lag").found
        == "700, catches up: 50/s written, 150/s read; at this pace for another 7 s"
    )
    assert not [finding for finding in found if finding.check == "progress"]


def test_a_member_that_commits_nothing_is_named_and_the_one_that_does_is_not() -> None:
    both = [member("a", 0), member("b", 1)]
    before = look(both, [offset(0, 5, 50, "a"), offset(1, 5, 50, "b")])
    after = look(both, [offset(0, 5, 60, "a"), offset(1, 30, 60, "b")])
    stuck = finding_of(findings(before, after), "progress")
    assert stuck.level is Level.FAIL
    assert "client-a at /10.0.0.1 does not get on: 55 to read in orders[0]" in stuck.found


def test_what_has_just_arrived_is_no_reason_to_call_a_member_stuck() -> None:
    before = look([member("a", 0)], [offset(0, 50, 50, "a")])
    after = look([member("a", 0)], [offset(0, 50, 60, "a")])
    assert not [finding for finding in findings(before, after) if finding.check == "progress"]


def test_rebalancing_names_who_came_and_went() -> None:
    offsets = [offset(0, 1, 2, None)]
    found = findings(
        look([member("a-1", 0)], offsets),
        look([member("a-1")], offsets, "preparing_rebalancing"),
        look([member("a-2", 0)], offsets),
    )
    rebalance = finding_of(found, "rebalance")
    assert "in between" in rebalance.found
    assert "1 member came (client-a-2), 1 member went (client-a-1)" in rebalance.found
    assert "max.poll.interval.ms" in rebalance.advice
    gone = findings(look([member("a", 0), member("b")], offsets), look([member("a", 0)], offsets))
    assert "session.timeout.ms" in finding_of(gone, "members").advice


def test_a_rebalance_that_does_not_end_waits_for_somebody() -> None:
    waiting = look([member("a"), member("b")], [offset(0, 1, 2, None)], "preparing_rebalancing")
    found = finding_of(findings(waiting, waiting), "rebalance")
    assert (found.level, "at every look" in found.found) == (Level.FAIL, True)
    assert "joined again" in found.advice


def test_partitions_without_owner_and_members_without_partition() -> None:
    orphaned = look([member("a", 0)], [offset(0, 1, 1, "a"), offset(1, None, 9, None)])
    owners = finding_of(findings(orphaned, orphaned), "owners")
    assert (owners.level, "nobody reads orders[1]" in owners.found) == (Level.FAIL, True)
    idle = look([member("a", 0), member("b")], [offset(0, 1, 1, "a")])
    assert "1 of 2 members have no partition" in finding_of(findings(idle, idle), "owners").found
    left = look([member("a", 0, topic="new")], [offset(0, 1, 1, None)])
    assert "committed for orders, but no member reads it" in finding_of(findings(left, left), "owners").found


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (offset(0, 5, 200, "a", earliest=100), "95 offsets were deleted unread"),
        (offset(0, 500, 200, "a"), "committed 500, but it ends at 200"),
        (offset(0, None, 200, "a"), "nothing was ever committed for orders[0]"),
    ],
)
def test_commits_that_point_at_nothing(place: GroupOffset, said: str) -> None:
    same = look([member("a", 0)], [place])
    assert said in finding_of(findings(same, same), "commits").found


def test_lag_in_one_partition() -> None:
    reader = member("a", 0, 1, 2)
    before = look([reader], [offset(0, 0, 900, "a"), offset(1, 95, 100, "a"), offset(2, 100, 100, "a")])
    after = look([reader], [offset(0, 10, 900, "a"), offset(1, 95, 100, "a"), offset(2, 100, 100, "a")])
    assert finding_of(findings(before, after), "skew").found == "99% of the lag is in orders[0]"


def test_deleted_topics_are_told() -> None:
    same = look([], [], "empty", deleted_topics=("gone",))
    assert "gone was deleted" in finding_of(findings(same, same), "topics").found


def test_what_was_never_read_counts_and_is_no_skew() -> None:
    """As after the README's tour: a hundred messages of one partition are read, and none of the others."""
    same = look(
        [], [offset(0, None, 338, None), offset(1, 100, 324, None), offset(2, None, 338, None)], "empty"
    )
    found = findings(same, same)
    assert same.lag == 900
    assert "900 offsets wait" in finding_of(found, "members").found
    said = finding_of(found, "never read").found
    assert said == "nothing of orders[0], orders[2] was ever read: 676 offsets, all of it counted as lag"
    assert not [finding for finding in found if finding.check == "skew"]


def test_a_first_commit_is_progress() -> None:
    before = look([member("a", 0)], [offset(0, None, 100, "a", earliest=20)])
    after = look([member("a", 0)], [offset(0, 60, 100, "a", earliest=20)])
    assert finding_of(findings(before, after), "lag").found.startswith(
        "40, catches up: 0/s written, 20/s read"
    )


def test_what_waits_for_its_retry_makes_nobody_stuck() -> None:
    waiting = GroupOffset("orders.billing.retry", 0, 5, 7, "a")
    same = look([member("a", 0)], [offset(0, 10, 10, "a"), waiting])
    assert (same.lag, same.retrying) == (0, 2)
    found = group_findings(Watch((same, same), SECONDS), [Retries("orders", waiting.topic, 2, None)])
    assert {finding.level for finding in found} == {Level.OK}
    long_ago = group_findings(Watch((same, same), SECONDS), [Retries("orders", waiting.topic, 2, 1000)])
    assert (finding_of(long_ago, "retries").level, "due since" in finding_of(long_ago, "retries").found) == (
        Level.WARN,
        True,
    )
