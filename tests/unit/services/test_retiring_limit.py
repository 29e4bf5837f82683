"""What any broker tells of a retired number, from the metadata alone."""

from dataclasses import replace

import pytest
from tests.unit.controller.test_retiring import LIVE, a_topic, retirement

from penstock.coordination.image import Topic
from penstock.coordination.nodes import Removed
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.retiring import limit_of


def told(topic: Topic, index: int) -> tuple[int, int]:
    """The limit, and where a log of that number begins."""
    answer = limit_of(topic, index)
    return answer.offset, answer.timestamp


def test_a_retired_partition_has_its_limit_hidden_or_not() -> None:
    topic = a_topic(LIVE, retirement(10), retirement(20, hidden=True), to=1)
    assert [told(topic, index) for index in range(3)] == [(-1, 0), (10, 0), (20, 0)]


def test_a_removed_one_is_known_by_its_number() -> None:
    topic = replace(a_topic(LIVE), removed={1: Removed(limit=10, end=14, epoch=6)})
    assert told(topic, 1) == (10, 14)
    grown = replace(a_topic(LIVE, LIVE), removed=topic.removed)
    assert told(grown, 1) == (-1, 14), "there it is, and begins at 14"


def test_a_second_life_has_its_own_limit_unless_nobody_could_read_in_it() -> None:
    before = {1: Removed(limit=10, end=14, epoch=6)}
    assert told(replace(a_topic(LIVE, retirement(20), to=1), removed=before), 1) == (20, 14)
    assert told(replace(a_topic(LIVE, retirement(14), to=1), removed=before), 1) == (10, 14)


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_of_others_nothing_is_known(index: int) -> None:
    for topic in (a_topic(LIVE), None):
        with pytest.raises(ApiError) as refused:
            limit_of(topic, index)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
