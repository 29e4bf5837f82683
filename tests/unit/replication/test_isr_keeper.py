"""The keeper of who is in sync: whom it asks the controller to take out and let in, how often, and when it does not."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.replication.test_leading import THREE
from tests.unit.replication.test_retirement import NoSyncer, write
from tests.unit.storage.logs import opened

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError
from penstock.replication import isr_keeper
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

LAG_S = 10.0
SOON_S = 5.0  # and long enough for many retries
CONFIG = BrokerConfig.resolve({"log.dirs": "/data", "replica.lag.time.max.ms": str(int(LAG_S * 1000))})
TOPIC = TopicConfig.resolve({"penstock.ack.after": "written", "min.insync.replicas": "1"}, CONFIG)
Isr = list[tuple[int, int]]  # broker, its epoch
Asked = dict[int, Isr]  # by partition


class Cluster:
    """Partitions that are led here, of three replicas, and a controller that says what it is told to say."""

    def __init__(self, loop: SimLoop, state: PartitionState, count: int = 1) -> None:
        self.loop = loop
        self.asked: list[Asked] = []
        self.says: ErrorCode | Exception = ErrorCode.NONE
        self.writes = True  # what it was asked for
        self.brokers = {broker: SimpleNamespace(epoch=broker + 100, stopping=False) for broker in (1, 2, 3)}
        table = PartitionTable()
        self.partitions = [
            Partition("t", bytes(16), index, opened(MemFiles()).log, 5, NoSyncer(), sync_before_ack=False)
            for index in range(count)
        ]
        table.add(Topic("t", bytes(16), TOPIC, dict(enumerate(self.partitions))))
        for partition in self.partitions:
            partition.lead(5, Leading(1, state, 1, epoch_start=0, now=loop.time()))
            write(partition, 3)
        image: Any = SimpleNamespace(brokers=self.brokers)
        self.keeper = IsrKeeper(loop, 1, image, table, LiveConfig(CONFIG), self._ask, lambda: 101)

    def follow(self, replica: int, end: int, index: int = 0, *, epoch: int | None = None) -> None:
        """As a follower's fetch does it."""
        partition = self.partitions[index]
        assert partition.leading is not None
        known = self.brokers[replica].epoch if epoch is None else epoch
        partition.leading.fetched(replica, known, end, partition.log.end_offset, self.loop.time())
        partition.advance()
        self.keeper.fetched(partition, replica)

    async def _ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (topic,) = request.topics
        self.asked.append(
            {
                partition.partition_index: [
                    (each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs
                ]
                for partition in topic.partitions
            }
        )
        if isinstance(self.says, Exception):
            raise self.says
        answers = [
            ResponsePartitionData(partition_index=partition.partition_index, error_code=self.says)
            for partition in topic.partitions
        ]
        if self.writes and self.says is ErrorCode.NONE:
            for index, isr in self.asked[-1].items():
                self.loop.call_later(0.05, self._written, self.partitions[index], isr)
        return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=topic.topic_id, partitions=answers)])

    def _written(self, partition: Partition, isr: Isr) -> None:
        """The metadata says so."""
        leading = partition.leading
        assert leading is not None
        members = tuple(broker for broker, _ in isr)
        leading.committed(
            replace(leading.state, isr=members, partition_epoch=leading.state.partition_epoch + 1)
        )
        partition.advance()


def run(
    story: Callable[[Cluster], Coroutine[Any, Any, None]], state: PartitionState = THREE, count: int = 1
) -> None:
    loop = SimLoop(1)

    async def told() -> None:
        cluster = Cluster(loop, state, count)
        running = asyncio.ensure_future(cluster.keeper.run())
        try:
            await story(cluster)
        finally:
            running.cancel()

    loop.run_until_complete(loop.spawn("broker", told()))


TWO_IN_SYNC = replace(THREE, isr=(1, 2))


def test_who_lags_is_taken_out_once_it_has_for_long_enough() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.follow(3, 2)
        until = cluster.loop.time() + LAG_S - 1
        while cluster.loop.time() < until:
            cluster.follow(2, 3)
            await asyncio.sleep(0.5)
        assert cluster.asked == []
        for _ in range(20):
            cluster.follow(2, 3)
            await asyncio.sleep(0.5)
        assert cluster.asked == [{0: [(1, 101), (2, 102)]}]
        assert cluster.partitions[0].high_watermark == 3  # which waits for it no longer

    run(story)


def test_who_caught_up_is_let_in_and_asked_for_once() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.follow(2, 3)
        cluster.follow(3, 2)
        await asyncio.sleep(SOON_S)
        assert cluster.asked == [], "it lacks something that is committed"
        cluster.follow(3, 3)
        cluster.follow(3, 3)
        await asyncio.sleep(SOON_S)
        assert cluster.asked == [{0: [(1, 101), (2, 102), (3, 103)]}]

    run(story, TWO_IN_SYNC)


@pytest.mark.parametrize("how", ["gone", "stopping", "of an earlier process"])
def test_nobody_is_let_in_who_is_not_registered_to_stay(how: str) -> None:
    async def story(cluster: Cluster) -> None:
        if how == "gone":
            del cluster.brokers[3]
        elif how == "stopping":
            cluster.brokers[3].stopping = True
        cluster.follow(2, 3)
        cluster.follow(3, 3, epoch=99)
        await asyncio.sleep(SOON_S)
        assert cluster.asked == []

    run(story, TWO_IN_SYNC)


def test_a_controller_that_does_not_answer_is_asked_the_same_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.says = PenstockError("nobody is there")
        cluster.follow(2, 3)
        cluster.follow(3, 3)
        await asyncio.sleep(SOON_S)
        assert len(cluster.asked) > 2
        cluster.says = ErrorCode.NONE
        await asyncio.sleep(SOON_S)
        asked = len(cluster.asked)
        assert all(proposal == {0: [(1, 101), (2, 102), (3, 103)]} for proposal in cluster.asked)
        await asyncio.sleep(SOON_S)
        assert len(cluster.asked) == asked, "it has been done"

    run(story, TWO_IN_SYNC)


def test_an_answer_counts_for_nothing_before_the_metadata_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.writes = False
        cluster.follow(2, 3)
        cluster.follow(3, 3)
        await asyncio.sleep(SOON_S)
        assert len(cluster.asked) > 2
        leading = cluster.partitions[0].leading
        assert leading is not None
        assert leading.state.isr == (1, 2)

    run(story, TWO_IN_SYNC)


def test_who_is_refused_is_not_waited_for_and_asked_for_again_when_it_fetches() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.says = ErrorCode.INELIGIBLE_REPLICA
        cluster.follow(2, 3)
        cluster.follow(3, 3)
        await asyncio.sleep(SOON_S)
        assert len(cluster.asked) == 1
        partition = cluster.partitions[0]
        write(partition)
        cluster.follow(2, 4)
        assert partition.high_watermark == 4
        cluster.says = ErrorCode.NONE
        cluster.follow(3, 4)
        await asyncio.sleep(SOON_S)
        assert len(cluster.asked) == 2

    run(story, TWO_IN_SYNC)


def test_a_leader_whose_log_failed_gives_nobody_up() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.partitions[0].log.failed = True
        await asyncio.sleep(4 * LAG_S)
        assert cluster.asked == []
        cluster.partitions[0].log.failed = False
        await asyncio.sleep(SOON_S)
        assert cluster.asked == [{0: [(1, 101)]}]

    run(story)


def test_those_behind_a_request_that_failed_come_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_keeper, "ISR_PROPOSALS_MAX", 2)

    async def story(cluster: Cluster) -> None:
        cluster.says = PenstockError("nobody is there")
        for index in range(5):
            cluster.follow(2, 3, index)
            cluster.follow(3, 3, index)
        await asyncio.sleep(0.1)
        assert [sorted(proposal) for proposal in cluster.asked] == [[0, 1]]
        cluster.says = ErrorCode.NONE
        await asyncio.sleep(SOON_S)
        assert all(len(proposal) <= 2 for proposal in cluster.asked)
        states = [partition.leading.state.isr for partition in cluster.partitions if partition.leading]
        assert states == [(1, 2, 3)] * 5

    run(story, TWO_IN_SYNC, count=5)


def test_it_counts_who_left_and_who_came() -> None:
    keeper = Cluster(SimLoop(1), THREE).keeper
    for before, after in (((1, 2), (1,)), ((1,), (1, 2)), ((1, 2), (1, 3)), ((1,), (1,))):
        keeper.changed(before, after)
    assert (keeper.shrinks, keeper.expands) == (2, 2)


def test_a_leader_that_was_refused_speaks_again_while_there_are_suspects() -> None:
    """The one that it wanted in may never come back, and nobody is given up or elected without the leader's word."""

    async def story(cluster: Cluster) -> None:
        cluster.says = ErrorCode.INELIGIBLE_REPLICA
        cluster.follow(2, 3)
        await asyncio.sleep(SOON_S)
        assert cluster.asked[0] == {0: [(1, 101), (2, 102)]}
        del cluster.brokers[2]
        cluster.says = ErrorCode.NONE
        cluster.asked.clear()
        await asyncio.sleep(SOON_S)
        assert cluster.asked[0] == {0: [(1, 101)]}

    run(story, replace(THREE, isr=(1,), suspects=(3,)))
