"""ListOffsets as Apache Kafka 4.3 answers it."""

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.storage.logs import a_batch

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ClientGoneError
from penstock.core.session import Session
from penstock.frontends.kafka.handlers.list_offsets import handle
from penstock.frontends.kafka.registry import Call
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.kafka.retired_specs import LIMIT

NEWEST = 11


async def offsets(
    asked: Asked, timestamp: int, version: int = NEWEST, *, topic: str = "t", index: int = 0, epoch: int = -1
) -> tuple[int, int, int, int]:
    partition = ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = (await asked.ask(ApiKey.LIST_OFFSETS, request, version)).topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
async def test_places_and_times_at_every_version(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        for first in (1000, 1200, 1400):
            asked.append("t", a_batch([first, first + 100]))
        asked.append("t", a_batch([9000]), commit=False)
        epoch = 0 if version >= 4 else -1
        expected = {
            -1: (0, -1, 6, epoch),
            -2: (0, -1, 0, epoch),
            -3: (0, 1500, 5, epoch) if version >= 7 else (35, -1, -1, -1),
            -4: (0, -1, 0, epoch) if version >= 8 else (35, -1, -1, -1),
            -5: (0 if version >= 9 else 35, -1, -1, -1),
            -6: (0 if version >= 11 else 35, -1, -1, -1),
            -7: (35, -1, -1, -1),
            0: (0, 1000, 0, epoch),
            1150: (0, 1200, 2, epoch),
            1500: (0, 1500, 5, epoch),
            1501: (0, -1, -1, -1),
        }
        assert {timestamp: await offsets(asked, timestamp, version) for timestamp in expected} == expected


async def test_deleted_records_are_not_found() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch([3000, 1000, 2000]))
        asked.partition("t").log.advance_start(1)
        assert await offsets(asked, -2) == (0, -1, 1, 0)
        assert await offsets(asked, 0) == (0, 1000, 1, 0)
        assert await offsets(asked, -3) == (0, 2000, 2, 0)


async def test_leader_epochs_must_match() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        assert (await offsets(asked, -1, epoch=0))[0] == 0
        assert (await offsets(asked, -1, epoch=5))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await offsets(asked, -1, epoch=-5))[0] == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("topic", "index"), [("t", 1), ("t", -1), ("nope", 0), ("a/b", 0)])
async def test_what_is_not_here_is_unknown(topic: str, index: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        answer = await offsets(asked, -1, topic=topic, index=index)
        assert answer == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


async def test_a_partition_asked_twice_is_refused_once() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        answers = (await asked.ask(ApiKey.LIST_OFFSETS, request, NEWEST)).topics[0].partitions
        assert [(a.partition_index, a.error_code) for a in answers] == [(0, 42), (1, 0)]


async def test_a_partition_asked_again_in_a_later_portion_is_refused_unseen() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch([1000, 2000]))
        call = Call(NEWEST, "tester", Session(asked.listener, "127.0.0.1"))
        codes = []
        for timestamp in (1000, 2000):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
            answer = await handle(asked.services, request, call)
            codes.append(answer.topics[0].partitions[0].error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


async def test_an_unknown_isolation_level_is_an_error() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])
        request = ListOffsetsRequest(isolation_level=7, topics=[topic])
        response = await asked.ask(ApiKey.LIST_OFFSETS, request, NEWEST)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", [1, NEWEST])
async def test_any_broker_tells_whether_a_number_was_retired(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        assert await offsets(asked, LIMIT, version) == (0, 0, -1, -1)
        assert (await offsets(asked, LIMIT, version, index=1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await offsets(asked, LIMIT, version, topic="u"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_no_time_is_looked_for_when_its_client_is_gone() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch([1000]))
        session = Session("PLAINTEXT")
        session.is_lost = True
        partition = ListOffsetsPartition(partition_index=0, timestamp=1000)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
        )
        with pytest.raises(ClientGoneError):
            await handle(asked.broker.services, request, Call(NEWEST, None, session))
