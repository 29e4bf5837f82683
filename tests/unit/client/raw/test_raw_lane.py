"""One partition's batches keep their order through failures."""

from penstock.client.raw import Delivery, TopicPartition
from penstock.client.raw.lane import Lane
from penstock.client.raw.stamping import Batch

AT = TopicPartition("t", 0)


def lane_of(count: int) -> tuple[Lane, list[Batch]]:
    lane = Lane(AT)
    batches = [Batch(Delivery(AT), bytearray(61), memoryview(b""), 0.0) for _ in range(count)]
    lane.waiting.extend(batches)
    return lane, batches


def test_a_lane_holds_until_the_fate_of_all_is_known() -> None:
    lane, batches = lane_of(4)
    flying = [lane.take() for _ in range(3)]
    assert flying == batches[:3]
    lane.failed(flying[1])
    assert lane.holds
    assert not lane.ready, "the fourth must not overtake"
    lane.delivered(flying[0])
    assert not lane.ready
    assert lane.behind_a_failure(flying[2])
    lane.failed(flying[2])
    assert lane.ready
    assert list(lane.waiting) == batches[1:]
    assert [lane.take() for _ in range(3)] == batches[1:]
    assert not any(batch.failed for batch in batches)
    assert [batch.tries for batch in batches] == [1, 2, 2, 1]


def test_one_that_was_stored_behind_a_failure_is_not_sent_again() -> None:
    lane, batches = lane_of(3)
    flying = [lane.take() for _ in range(2)]
    lane.failed(flying[0])
    lane.delivered(flying[1])
    assert list(lane.waiting) == [batches[0], batches[2]]
    assert lane.ready
