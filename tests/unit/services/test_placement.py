"""Where replicas go."""

from collections import Counter

import pytest

from penstock.controller.placement import check_replicas, place
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_replicas_are_distinct_and_load_is_even(factor: int, start: int) -> None:
    brokers = [1, 2, 4, 7, 9]
    placed = place(20, factor, brokers, start=start)
    assert all(len(set(replicas)) == factor and set(replicas) <= set(brokers) for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {4}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {4 * factor}


def test_followers_of_one_leader_are_spread_over_all_others() -> None:
    placed = place(20, 2, [1, 2, 3, 4, 5], start=0)
    assert {replicas[1] for replicas in placed if replicas[0] == 1} == {2, 3, 4, 5}


def test_one_broker_holds_everything_once() -> None:
    assert place(3, 1, [5], start=11) == [(5,), (5,), (5,)]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(ApiError, match=r"only 2 broker\(s\) are registered") as refused:
        place(1, 3, [1, 2], start=0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("replicas", "before", "problem"),
    [
        ([], None, "includes an empty replica list."),
        ([1, 7], None, "includes broker 7, but no such broker is registered."),
        ([2, 1, 2], None, "includes the broker 2 more than once."),
        (
            [1, 2],
            1,
            (
                "includes a partition with 2 replica(s), but this is not consistent with previous partitions, "
                "which have 1 replica(s)."
            ),
        ),
    ],
)
def test_replicas_given_by_hand_are_checked(replicas: list[int], before: int | None, problem: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_replicas(replicas, [1, 2, 3], before)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.value.message == f"The manual partition assignment {problem}"


def test_replicas_of_live_brokers_pass_in_any_order() -> None:
    check_replicas([3, 1], [1, 2, 3], 2)
