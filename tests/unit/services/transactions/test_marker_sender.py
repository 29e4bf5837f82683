"""Markers reach every partition: retries, partitions that are gone, other brokers, shards that are not ours now."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.services.transactions.serving import P0, P1, ScriptedWriter, Serving, a_machine, serving
from tests.unit.waiting import until

from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.groups.transactions.layouts import TopicPartition
from penstock.replication.peer import NotSentError, PeerError
from penstock.services.transactions import marker_sender
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import write_txn_markers as codec
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE, OTHER, THIRD, NOBODY = 1, 2, 3, -1
Script = Callable[[int, TopicPartition], ErrorCode]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "_RETRY_SECONDS", 0.001)


class Peers:
    """Other brokers, as `services.peers` asks them: what is sent passes the codec."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.script: Script = lambda _broker, _place: ErrorCode.NONE
        self.failing: list[PeerError] = []

    async def ask(
        self, broker: int, purpose: str, key: int, version: int, request: Any, timeout_s: float
    ) -> Any:
        assert (key, purpose) == (ApiKey.WRITE_TXN_MARKERS, "markers")
        sent, _ = codec.decode_request(codec.encode_request(request, version), 0, version)
        self.asked.append((broker, sent))
        await asyncio.sleep(0)
        if self.failing:
            raise self.failing.pop(0)
        answer = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[self._topic(broker, topic) for topic in marker.topics],
                )
                for marker in sent.markers
            ]
        )
        return codec.decode_response(codec.encode_response(answer, version), 0, version)[0]

    def _topic(self, broker: int, topic: Any) -> WritableTxnMarkerTopicResult:
        return WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=self.script(broker, TopicPartition(topic.name, index))
                )
                for index in topic.partition_indexes
            ],
        )

    def places(self, broker: int) -> list[list[TopicPartition]]:
        """What each request to that broker named."""
        return [
            [
                TopicPartition(topic.name, index)
                for marker in sent.markers
                for topic in marker.topics
                for index in topic.partition_indexes
            ]
            for asked, sent in self.asked
            if asked == broker
        ]


class Cluster:
    """The metadata as the sender sees it; brokers 2 and 3 are there."""

    def __init__(self, serves: Serving) -> None:
        self.serves, self.peers, self.image = serves, Peers(), ClusterImage()
        for broker in (OTHER, THIRD):
            self.image.brokers[broker] = BrokerRegistration(broker, f"{broker}", "127.0.0.1", 9)
        self.caught_up = 0
        self.catches_up: Callable[[], bool] = lambda: True
        self.sender: Any = serves.asked.services.marker_sender
        self.sender._image, self.sender._ask, self.sender._catch_up = (
            self.image,
            self.peers.ask,
            self._catch_up,
        )

    def lead(self, *leaders: int) -> None:
        """Who leads each partition of `orders`; without any the topic is gone."""
        self.image.topics.pop("orders", None)
        if leaders:
            states = tuple(PartitionState(replicas=(at,), isr=(at,), leader=at) for at in leaders)
            self.image.topics["orders"] = Topic("orders", bytes(16), states, {}, 0)

    async def _catch_up(self, timeout_s: float) -> bool:
        self.caught_up += 1
        await asyncio.sleep(0)
        return self.catches_up()


@asynccontextmanager
async def clustered(*leaders: int) -> AsyncIterator[tuple[Serving, Cluster]]:
    async with serving(a_machine()) as serves:
        cluster = Cluster(serves)
        cluster.lead(*leaders)
        yield serves, cluster


async def prepared(serves: Serving, *places: TopicPartition) -> None:
    await serves.begun(*places)
    assert (await serves.end(0, 0)).error is ErrorCode.NONE


async def completed(serves: Serving) -> None:
    await until(lambda: serves.state() == "CompleteCommit")


async def passed(turns: int = 50) -> None:
    for _ in range(turns):
        await asyncio.sleep(0.001)


async def test_each_leader_is_sent_what_it_leads_in_one_request() -> None:
    async with clustered(HERE, OTHER, OTHER, THIRD) as (serves, cluster):
        places = [TopicPartition("orders", index) for index in range(4)]
        await prepared(serves, *places)
        await completed(serves)
        assert serves.writer.places() == [places[0]]
        assert [sorted(request) for request in cluster.peers.places(OTHER)] == [places[1:3]]
        assert cluster.peers.places(THIRD) == [places[3:]]
        marker = cluster.peers.asked[0][1].markers[0]
        epoch = serves.shard().epoch
        told = (
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
        )
        assert told == (0, 0, True, epoch)
        assert marker.transaction_version == 0


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        RuntimeError("a bug"),
    ],
)
async def test_what_fails_here_is_tried_again_and_only_that(failure: ErrorCode | Exception) -> None:
    async with clustered(HERE, HERE) as (serves, _):
        serves.writer.script(P1, failure, failure)
        await prepared(serves, P0, P1)
        await completed(serves)
        assert (serves.writer.places().count(P0), serves.writer.places().count(P1)) == (1, 3)


@pytest.mark.parametrize("error", [NotSentError("not there"), PeerError("no answer")])
async def test_a_broker_that_does_not_answer_is_asked_again(error: PeerError) -> None:
    async with clustered(OTHER, HERE) as (serves, cluster):
        cluster.peers.failing = [error, error]
        await prepared(serves, P0, P1)
        await completed(serves)
        assert cluster.peers.places(OTHER) == [[P0]] * 3


async def test_a_partition_that_moved_is_looked_for_where_it_is_by_then() -> None:
    async with clustered(OTHER) as (serves, cluster):
        cluster.peers.script = lambda broker, _: (
            ErrorCode.NOT_LEADER_OR_FOLLOWER if broker == OTHER else ErrorCode.NONE
        )
        await prepared(serves, P0)
        await until(lambda: len(cluster.peers.places(OTHER)) >= 2)
        cluster.lead(THIRD)
        await completed(serves)
        assert cluster.peers.places(THIRD) == [[P0]]


async def test_a_partition_without_a_leader_is_waited_for() -> None:
    async with clustered(NOBODY) as (serves, cluster):
        await prepared(serves, P0)
        await passed()
        assert (serves.state(), serves.writer.written) == ("PrepareCommit", [])
        cluster.lead(HERE)
        await completed(serves)


async def test_partitions_that_are_gone_count_as_marked() -> None:
    async with clustered(HERE) as (serves, cluster):  # of two partitions one is left
        await prepared(serves, P0, P1)
        await completed(serves)
        assert serves.writer.places() == [P0]
        assert cluster.caught_up == 1


async def test_what_the_latest_metadata_has_is_not_gone() -> None:
    async with clustered() as (serves, cluster):

        def arrives() -> bool:
            cluster.lead(HERE)
            return True

        cluster.catches_up = arrives
        await prepared(serves, P0)
        await completed(serves)
        assert serves.writer.places() == [P0]


async def test_while_nobody_knows_the_latest_metadata_nothing_is_gone() -> None:
    async with clustered() as (serves, cluster):
        cluster.catches_up = lambda: False
        await prepared(serves, P0)
        await until(lambda: cluster.caught_up >= 3)
        assert serves.state() == "PrepareCommit"
        cluster.catches_up = lambda: True
        await completed(serves)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
@pytest.mark.parametrize("leader", [HERE, OTHER])
async def test_who_was_fenced_stops(code: ErrorCode, leader: int) -> None:
    async with clustered(leader, THIRD) as (serves, cluster):
        serves.writer.script(P0, code)
        cluster.peers.script = lambda broker, _: (
            code
            if broker == OTHER
            else ErrorCode.NOT_LEADER_OR_FOLLOWER
            if broker == THIRD
            else ErrorCode.NONE
        )
        await prepared(serves, P0, P1)
        await until(lambda: serves.writer.written or cluster.peers.places(OTHER))
        await passed()
        asked = len(cluster.peers.asked) + len(serves.writer.written)
        await passed()
        assert len(cluster.peers.asked) + len(serves.writer.written) == asked
        assert serves.state() == "PrepareCommit"


async def test_a_shard_that_went_offline_in_the_midst_is_begun_again_from_what_is_stored() -> None:
    async with clustered(HERE, HERE) as (serves, _):
        serves.writer.open.clear()
        await prepared(serves, P0, P1)
        await until(lambda: serves.writer.under_way == 2)
        shard, first = serves.shard(), serves.shard().state.find("tx").handed
        shard.go_offline("for a test")
        serves.writer.open.set()
        await passed(5)
        assert shard.state.find("tx") is None or shard.state.find("tx").handed is not first
        await until(lambda: all(each.tried_at for each in serves.runtime.shards()))
        await serves.active()
        await completed(serves)
        assert sorted(serves.writer.places()) == [P0, P0, P1, P1]


async def test_nothing_more_is_sent_for_a_shard_that_is_not_ours() -> None:
    async with clustered(HERE, HERE) as (serves, _):
        serves.writer.script(P0, *10_000 * [ErrorCode.NOT_LEADER_OR_FOLLOWER])
        await prepared(serves, P0)
        await until(lambda: len(serves.writer.written) >= 2)
        table = serves.asked.services.table.by_name[b"__transaction_state"]
        del table.led[serves.shard().partition.index]
        await passed(5)
        sent = len(serves.writer.written)
        await passed()
        assert len(serves.writer.written) == sent


async def test_late_news_of_an_end_that_is_over_changes_nothing() -> None:
    """The epoch is the same in the next transaction: only the very object tells the two apart."""
    async with clustered(HERE, HERE) as (serves, cluster):
        await prepared(serves, P0)
        await completed(serves)
        late = marker_sender._Ending(serves.shard().state.find("tx").markers_due())
        serves.writer.open.clear()
        assert await serves.add(0, 0, P0) is ErrorCode.NONE
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        cluster.sender._report(late, [P0])
        assert serves.state() == "PrepareCommit"
        serves.writer.open.set()
        await completed(serves)


async def test_a_late_retry_never_ends_the_next_transaction() -> None:
    """Its producer id and epoch are the same: its marker would commit what is still open."""
    async with clustered(HERE, HERE) as (serves, cluster):
        serves.writer.open.clear()
        await prepared(serves, P0)
        late = marker_sender._Ending(serves.shard().state.find("tx").handed)
        serves.writer.open.set()
        await completed(serves)
        assert await serves.add(0, 0, P0) is ErrorCode.NONE
        cluster.sender._again(late, [P0])
        await passed(5)
        assert (serves.state(), serves.writer.places()) == ("Ongoing", [P0])


async def test_few_are_written_at_once_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "MARKERS_WRITTEN_AT_ONCE_MAX", 3)
    monkeypatch.setattr(marker_sender, "MARKERS_PER_REQUEST_MAX", 4)
    async with clustered(*10 * [HERE], *10 * [OTHER]) as (serves, cluster):
        places = [TopicPartition("orders", index) for index in range(20)]
        serves.writer.open.clear()
        await prepared(serves, *places)
        await until(lambda: serves.writer.under_way == 3)
        serves.writer.open.set()
        await completed(serves)
        assert serves.writer.most_under_way == 3
        assert sorted(serves.writer.places()) == places[:10]
        assert sorted(len(request) for request in cluster.peers.places(OTHER)) == [2, 4, 4]
        assert cluster.sender._outboxes == {}
        assert not cluster.sender._retries


async def test_the_end_of_many_transactions_shares_requests() -> None:
    async with clustered(OTHER) as (serves, cluster):
        names = [f"tx-{number}" for number in range(10)]
        begun = [await serves.init(name) for name in names]
        for name, reply in zip(names, begun, strict=True):
            await serves.add(reply.producer_id, 0, P0, transactional_id=name)
        await asyncio.gather(
            *(serves.end(reply.producer_id, 0, name=name) for name, reply in zip(names, begun, strict=True))
        )
        await until(lambda: {serves.state(name) for name in names} == {"CompleteCommit"})
        assert len(cluster.peers.asked) < len(names)
        assert {marker.producer_id for _, sent in cluster.peers.asked for marker in sent.markers} == {
            reply.producer_id for reply in begun
        }


async def test_a_writer_that_waits_is_cancelled_with_the_sender() -> None:
    writer = ScriptedWriter()
    async with serving(a_machine(), writer) as serves:
        writer.open.clear()
        await prepared(serves, P0)
        await until(lambda: writer.under_way == 1)
        await serves.asked.broker._tasks.close()
        assert writer.under_way == 0
