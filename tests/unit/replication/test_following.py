"""What a follower makes of its leader's answers: takes over, cuts off, begins anew, or leaves alone."""

import pytest
from tests.unit.replication.test_begun_anew import Nobody, follower_of
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.lease import Work
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.replication.partition import Partition
from penstock.storage.producers import ProducerState
from penstock.wire.kafka.generated.fetch import EpochEndOffset, PartitionData

EPOCH = 3  # of the leader that is followed


def sent(first: int, count: int = 1, epoch: int = EPOCH) -> bytes:
    """Batches of one record each, as a leader has them."""
    return b"".join(
        build_batch([Record(offset, 1, b"k", b"v")], BatchOptions(base_offset=offset, leader_epoch=epoch))
        for offset in range(first, first + count)
    )


def an_answer(
    records: bytes | None = None,
    *,
    committed: int = 0,
    start: int = 0,
    parted: tuple[int, int] | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> PartitionData:
    answer = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=committed,
        last_stable_offset=committed,
        log_start_offset=start,
        records=records,
    )
    if parted is not None:
        answer.diverging_epoch = EpochEndOffset(epoch=parted[0], end_offset=parted[1])
    return answer


class Knows(Nobody):
    """A leader that is asked what producers did before its log begins."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def producers_below(self, offset: int) -> ProducerState:
        self.asked.append(offset)
        return ProducerState()


async def a_follower(bench: Bench, epochs: tuple[int, ...] = ()) -> Partition:
    """Its log has a record for each of these epochs."""
    partition = bench.topic("t", cleanup_policy="delete")
    for epoch in epochs:
        partition.leader_epoch = epoch
        await bench.put(partition, b"K", b"v")
    partition.is_leader = partition.in_sync = False
    partition.leader_epoch = EPOCH
    return partition


def contents(partition: Partition) -> bytes:
    (segment,) = partition.log.segments
    return segment.file.pread(segment.size, 0)


def test_records_are_taken_over_byte_for_byte_and_durably() -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench)
        assert await follower_of(bench).take(partition, EPOCH, an_answer(sent(0, 3), committed=2), Nobody())
        assert contents(partition) == sent(0, 3)
        assert partition.log.synced_end.offset == 3  # the next fetch says that we have it
        assert partition.high_watermark == 2
        assert partition.log.epochs.entries() == [(EPOCH, 0)]

    run(story)


@pytest.mark.parametrize("how", ["leads", "of another epoch", "failed"])
def test_an_answer_of_the_past_is_left_alone(how: str) -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, (1, 1))
        if how == "leads":
            partition.is_leader = True
        elif how == "failed":
            partition.log.failed = True
        epoch = EPOCH - 1 if how == "of another epoch" else EPOCH
        for answer in (an_answer(sent(2), committed=3), an_answer(parted=(0, 0))):
            assert not await follower_of(bench).take(partition, epoch, answer, Nobody())
        assert partition.log.end_offset == 2

    run(story)


@pytest.mark.parametrize(
    ("parted", "end"),
    [((1, 3), 3), ((1, 2), 2), ((2, 4), 4), ((0, 1), 0)],
    ids=["it lacks an epoch", "it ended earlier", "it has less of the last", "nothing in common"],
)
def test_the_log_is_cut_by_epochs(parted: tuple[int, int], end: int) -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, (1, 1, 1, 2, 2))
        # What is known to be committed here lags behind, and decides nothing.
        partition.limits.move(partition.log.end()._replace(offset=0, position=0))
        assert await follower_of(bench).take(partition, EPOCH, an_answer(parted=parted), Nobody())
        assert partition.log.end_offset == end
        assert await follower_of(bench).take(partition, EPOCH, an_answer(sent(end)), Nobody())
        assert partition.log.epochs.latest == EPOCH

    run(story)


def test_batches_of_a_later_epoch_than_the_leaders_are_refused() -> None:
    async def story(bench: Bench) -> None:
        partition, later = await a_follower(bench, (1, 2)), an_answer(sent(2, epoch=EPOCH + 1))
        assert not await follower_of(bench).take(partition, EPOCH, later, Nobody())
        assert (partition.log.end_offset, partition.log.failed) == (2, False)

    run(story)


@pytest.mark.parametrize("first", [0, 1])
def test_batches_that_are_here_already_are_refused(first: int) -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, (1, 2))
        assert not await follower_of(bench).take(partition, EPOCH, an_answer(sent(first)), Nobody())
        assert (partition.log.end_offset, partition.log.epochs.latest) == (2, 2)

    run(story)


def test_a_gap_is_refused_until_the_leader_shows_it_again() -> None:
    async def story(bench: Bench) -> None:
        partition, follower = await a_follower(bench, (EPOCH, EPOCH)), follower_of(bench)
        for first in (4, 5):  # not the same
            assert not await follower.take(partition, EPOCH, an_answer(sent(first)), Nobody())
            assert partition.log.end_offset == 2
        assert await follower.take(partition, EPOCH, an_answer(sent(5)), Nobody())
        assert partition.log.end_offset == 6
        assert partition.log.may_have_gaps

    run(story)


def test_what_is_damaged_on_the_way_is_refused_and_what_came_before_it_kept() -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench)
        records = bytearray(sent(0, 2))
        records[-1] ^= 1
        assert not await follower_of(bench).take(partition, EPOCH, an_answer(bytes(records)), Nobody())
        assert partition.log.end_offset <= 1
        assert not partition.log.failed

    run(story)


def test_what_the_leader_deleted_is_deleted_here() -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, (1, 1, 1))
        assert await follower_of(bench).take(partition, EPOCH, an_answer(committed=3, start=2), Nobody())
        assert (partition.log.start_offset, partition.log.end_offset) == (2, 3)

    run(story)


def test_a_log_that_retention_overtook_begins_anew_behind_all_it_had() -> None:
    async def story(bench: Bench) -> None:
        partition, leader = await a_follower(bench, (1, 1)), Knows()
        out = an_answer(start=9, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert not await follower_of(bench).take(partition, EPOCH, out, leader)  # it asks again after a rest
        assert (partition.log.start_offset, partition.log.end_offset) == (9, 9)
        assert leader.asked == [9], "elected, it would store repeats as new"
        within = an_answer(start=1, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert not await follower_of(bench).take(partition, EPOCH, within, leader)
        assert partition.log.start_offset == 9

    run(story)


def test_a_log_of_another_history_begins_anew_where_its_leaders_does() -> None:
    async def story(bench: Bench) -> None:
        partition, leader = await a_follower(bench, (1, 1, 1, 1)), Knows()
        assert await follower_of(bench).take(partition, EPOCH, an_answer(parted=(-1, 2)), leader)
        assert (partition.log.start_offset, partition.log.end_offset) == (2, 2)
        assert leader.asked == [2]
        assert await follower_of(bench).take(partition, EPOCH, an_answer(sent(2)), leader)
        assert partition.log.end_offset == 3

    run(story)


def test_a_refusal_changes_nothing() -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, (1, 1))
        for error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            answer = an_answer(sent(2), committed=3, error=error)
            assert not await follower_of(bench).take(partition, EPOCH, answer, Nobody())
        assert partition.log.end_offset == 2

    run(story)


@pytest.mark.parametrize(
    "answer",
    [
        an_answer(sent(3, 2), committed=5, start=1),
        an_answer(committed=5, start=1),
        an_answer(parted=(-1, 1), start=1),
        an_answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, start=1),
    ],
)
@pytest.mark.parametrize("may_be_asked", [True, False])
def test_an_incomplete_log_takes_nothing_but_a_new_beginning_once_nobody_may_ask_for_it(
    answer: PartitionData, may_be_asked: bool
) -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, epochs=(1, 1, 2))
        partition.log.is_incomplete, partition.may_be_asked = True, may_be_asked
        assert await follower_of(bench).take(partition, EPOCH, answer, Knows()) is not may_be_asked
        log = partition.log
        assert log.is_incomplete is may_be_asked
        assert (log.start_offset, log.end_offset) == ((0, 3) if may_be_asked else (1, 1))

    run(story)


@pytest.mark.parametrize(
    "answer",
    [
        an_answer(parted=(1, 1)),
        an_answer(parted=(-1, 1), start=1),
        an_answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, start=9),
    ],
    ids=["to be cut", "of another history", "overtaken"],
)
def test_what_a_leader_said_is_past_when_another_was_elected_meanwhile(answer: PartitionData) -> None:
    async def story(bench: Bench) -> None:
        partition = await a_follower(bench, epochs=(1, 1, 2))
        compaction = await partition.lease.get(Work.CLEAN)
        assert compaction is not None
        taking = bench.loop.create_task(follower_of(bench).take(partition, EPOCH, answer, Knows()))
        await until(lambda: bool(partition.lease._waiting))
        partition.leader_epoch = EPOCH + 1
        compaction.release()
        assert not await taking
        assert (partition.log.start_offset, partition.log.end_offset) == (0, 3)

    run(story)
