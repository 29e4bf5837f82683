"""Produce: what is answered of each batch, and when."""

from typing import Any

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ProtocolError
from penstock.core.lease import Work
from penstock.core.limits import REQUEST_ENTRIES_WHOLE_MAX, SYNCS_OF_REQUEST_MAX, TURN_ITEMS_MAX
from penstock.records.builder import BatchOptions
from penstock.records.compression import Codec
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSION = 12  # by name
BATCH = bytes(make_batch([b"x"]))
Answer = tuple[str, int, int, int]  # topic, partition, error, base offset


def a_request(*batches: tuple[str, int, bytes | None], acks: int = -1) -> ProduceRequest:
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=number, records=batch)])
        for name, number, batch in batches
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def answers(response: Any) -> list[Answer]:
    return [
        (topic.name, partition.index, partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    ]


async def connected(asked: Asked) -> Connected:
    await asked.create("t", {"penstock.ack.after": "written"}, partitions=3)
    return Connected(asked)


async def test_each_batch_is_answered_in_its_place_whatever_becomes_of_the_others() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        damaged = BATCH[:-1] + b"?"
        request = a_request(
            ("t", 2, BATCH), ("none", 0, BATCH), ("t", 0, damaged), ("t", 1, None), ("t", 7, BATCH)
        )
        assert answers(client.ask(ApiKey.PRODUCE, VERSION, request).answer) == [
            ("t", 2, 0, 0),
            ("t", 0, ErrorCode.CORRUPT_MESSAGE, -1),
            ("t", 1, ErrorCode.INVALID_RECORD, -1),
            ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]


@pytest.mark.parametrize("version", [8, VERSION])
async def test_of_a_partition_that_is_named_twice_the_last_counts(version: int) -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        two = bytes(make_batch([b"x", b"y"]))
        reply = client.ask(ApiKey.PRODUCE, version, a_request(("t", 0, BATCH), ("t", 0, two)))
        assert answers(reply.answer) == [("t", 0, 0, 0)]
        assert asked.partition("t").log.end_offset == 2


@pytest.mark.parametrize("acks", [2, -2])
async def test_acks_that_cannot_be_had_store_nothing(acks: int) -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        reply = client.ask(ApiKey.PRODUCE, VERSION, a_request(("t", 0, BATCH), acks=acks))
        assert answers(reply.answer) == [("t", 0, ErrorCode.INVALID_REQUIRED_ACKS, -1)]
        assert asked.partition("t").log.end_offset == 0


async def test_who_wants_no_answer_gets_none_and_loses_its_connection_by_an_error() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        assert client.ask(ApiKey.PRODUCE, VERSION, a_request(("t", 0, BATCH), acks=0)).answer is None
        assert asked.partition("t").log.end_offset == 1
        with pytest.raises(ProtocolError, match="acks=0"):
            client.ask(ApiKey.PRODUCE, VERSION, a_request(("t", 7, BATCH), acks=0))


@pytest.mark.parametrize("batches", [1, 2], ids=["the short cut", "several"])
async def test_nobody_is_answered_before_the_commit_or_when_it_fails(batches: int) -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        partition = asked.partition("t")
        partition.sync_before_ack = True
        hold = partition.lease.take(Work.SYNC)  # nothing is committed
        assert hold is not None
        request = a_request(*[("t", number, BATCH) for number in range(batches)])
        first = client.ask(ApiKey.PRODUCE, VERSION, request)
        assert first.answer is None
        partition.limits.move(partition.log.end())
        assert answers(first.answer)[0] == ("t", 0, 0, 0)
        second = client.ask(ApiKey.PRODUCE, VERSION, request)
        assert second.answer is None
        partition.turn_away(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")
        assert answers(second.answer)[0] == ("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert [answer[2] for answer in answers(second.answer)[1:]] == [0] * (batches - 1)
        hold.release()


async def test_zstd_is_for_clients_that_know_of_it() -> None:
    batch = bytes(make_batch([b"x"], BatchOptions(codec=Codec.ZSTD)))
    async with Machine().broker() as asked:
        client = await connected(asked)
        for version, code in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, 0)):
            reply = client.ask(ApiKey.PRODUCE, version, a_request(("t", 0, batch)))
            assert answers(reply.answer)[0][2] == code


@pytest.mark.parametrize("acks", [1, -1])
async def test_very_many_batches_are_appended_in_turns(acks: int) -> None:
    """Each of them is a write: 3,000 in one request, from eight clients at once, held everybody up for a second."""
    async with Machine().broker() as asked:
        many = 3 * TURN_ITEMS_MAX
        await asked.create("t", {"penstock.ack.after": "written"}, partitions=many)
        client = Connected(asked)
        wanted = [("t", number, BATCH) for number in range(many)]
        reply = client.ask(ApiKey.PRODUCE, VERSION, a_request(*wanted, ("none", 0, BATCH), acks=acks))
        assert reply.answer is None
        assert await until_some_appended(asked) <= TURN_ITEMS_MAX
        unknown = ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert answers(await reply.filled()) == [*(("t", number, 0, 0) for number in range(many)), unknown]


async def test_few_partitions_of_a_request_wait_to_be_synced_at_a_time() -> None:
    async with Machine().broker() as asked:
        many = 2 * TURN_ITEMS_MAX
        await asked.create("t", {"penstock.ack.after": "synced"}, partitions=many)
        leases = [asked.partition("t", number).lease for number in range(many)]
        reply = Connected(asked).ask(
            ApiKey.PRODUCE, VERSION, a_request(*(("t", number, BATCH) for number in range(many)))
        )
        syncing: list[int] = []

        def is_answered() -> bool:
            syncing.append(sum(lease.is_syncing for lease in leases))
            return reply.answer is not None

        await until(is_answered)
        assert 0 < max(syncing) <= SYNCS_OF_REQUEST_MAX
        assert [answer[2] for answer in answers(reply.answer)] == [0] * many


async def until_some_appended(asked: Asked) -> int:
    logs = [partition.log for partition in asked.broker.table.partitions()]
    await until(lambda: any(log.end_offset for log in logs))
    return sum(log.end_offset for log in logs)


@pytest.mark.parametrize("version", [8, VERSION])
async def test_no_request_has_more_batches_than_can_be_looked_at_in_a_moment(version: int) -> None:
    """Those of null are six bytes each: seventeen million fit into 100 MB."""
    async with Machine().broker() as asked:
        client = await connected(asked)
        nothing = [PartitionProduceData(index=0, records=None)] * REQUEST_ENTRIES_WHOLE_MAX
        for topics in (
            [TopicProduceData(name="t", partition_data=nothing)],
            [TopicProduceData(name="t")] * (REQUEST_ENTRIES_WHOLE_MAX + 1),
        ):
            with pytest.raises(ProtocolError, match="are the most"):
                client.ask(ApiKey.PRODUCE, version, ProduceRequest(acks=1, topic_data=topics))
