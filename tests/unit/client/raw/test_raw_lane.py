"""One partition's batches keep their order through failures."""

from penstock.client.raw import Delivery, TopicPartition
from penstock.client.raw.partition_queue import PartitionQueue
from penstock.client.raw.stamping import Batch

AT = TopicPartition("t", 0)


def lane_of(count: int) -> tuple[PartitionQueue, list[Batch]]:
    queue = PartitionQueue(AT)
    batches = [Batch(Delivery(AT), bytearray(61), memoryview(b""), 0.0) for _ in range(count)]
    queue.waiting.extend(batches)
    return queue, batches


def test_a_lane_holds_until_the_fate_of_all_is_known() -> None:
    queue, batches = lane_of(4)
    flying = [queue.take() for _ in range(3)]
    assert flying == batches[:3]
    queue.failed(flying[1])
    assert queue.holds
    assert not queue.ready, "the fourth must not overtake"
    queue.delivered(flying[0])
    assert not queue.ready
    assert queue.behind_a_failure(flying[2])
    queue.failed(flying[2])
    assert queue.ready
    assert list(queue.waiting) == batches[1:]
    assert [queue.take() for _ in range(3)] == batches[1:]
    assert not any(batch.failed for batch in batches)
    assert [batch.tries for batch in batches] == [1, 2, 2, 1]


def test_one_that_was_stored_behind_a_failure_is_not_sent_again() -> None:
    queue, batches = lane_of(3)
    flying = [queue.take() for _ in range(2)]
    queue.failed(flying[0])
    queue.delivered(flying[1])
    assert list(queue.waiting) == [batches[0], batches[2]]
    assert queue.ready
