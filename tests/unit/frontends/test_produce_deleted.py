"""A Produce that gives way to others, and its topic is deleted meanwhile, or made again under its name."""

import threading
from collections.abc import Sequence

import pytest
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine
from tests.unit.frontends.test_produce import BATCH, VERSION, answers
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.lease import Work
from penstock.core.limits import SYNCS_OF_REQUEST_MAX, TURN_ITEMS_MAX
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.storage.data_dir import DataDir
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SYNCED, WRITTEN = ({"penstock.ack.after": after} for after in ("synced", "written"))
MONTH_MS = 30 * 24 * 60 * 60 * 1000
OF_THE_DELETED = b"of the deleted topic"


def a_request(*topics: tuple[str, int, bytes]) -> ProduceRequest:
    """The same batch for so many partitions of each topic."""
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=at, records=batch) for at in range(count)]
        )
        for name, count, batch in topics
    ]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)


def dated(timestamp: int, value: bytes) -> bytes:
    builder = BatchBuilder(BatchOptions())
    builder.append(value, key=b"k", timestamp=timestamp)
    return bytes(builder.build())


async def delete(asked: Asked, name: str) -> None:
    await asked.broker.metadata.delete_topic(name)
    await asked.broker.hosting.reconcile()


def ends(asked: Asked, topic: str, indexes: Sequence[int]) -> list[int]:
    return [asked.partition(topic, index).log.end_offset for index in indexes]


@pytest.mark.parametrize("appended", [1, 20, 80])
async def test_it_is_answered_whenever_its_topic_goes(appended: int) -> None:
    async with Machine().broker() as asked:
        many = 3 * TURN_ITEMS_MAX
        await asked.create("other", SYNCED)
        await asked.create("t", SYNCED, partitions=many)
        logs = [asked.partition("t", index).log for index in range(many)]
        reply = Connected(asked).ask(
            ApiKey.PRODUCE, VERSION, a_request(("t", many, BATCH), ("other", 1, BATCH))
        )
        await until(lambda: sum(log.end_offset for log in logs) >= appended)
        await delete(asked, "t")
        told = answers(await reply.filled())
        assert told[-1] == ("other", 0, 0, 0)
        assert {answer[2] for answer in told[appended:-1]} >= {ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_nothing_of_it_gets_into_the_next_topic_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches begin new segments: the last ones of the topic are a month old."""
    machine, unlinked = Machine(), threading.Event()
    empty_trash = DataDir.empty_trash

    def slowly(data_dir: DataDir) -> None:
        unlinked.wait(60)
        empty_trash(data_dir)

    async with machine.broker() as asked:
        many, some = TURN_ITEMS_MAX + 1, range(3)
        await asked.create("slow", SYNCED, partitions=SYNCS_OF_REQUEST_MAX)
        await asked.create("t", WRITTEN, partitions=many)
        for index in some:
            asked.append("t", bytearray(dated(NOW_MS - MONTH_MS, b"old")), index)
        slow = [asked.partition("slow", index) for index in range(SYNCS_OF_REQUEST_MAX)]
        holds = [hold for partition in slow if (hold := partition.lease.take(Work.SYNC))]
        batch = dated(NOW_MS, OF_THE_DELETED)
        request = a_request(("slow", len(slow), BATCH), ("t", many, batch))
        reply = Connected(asked).ask(ApiKey.PRODUCE, VERSION, request)
        await until(lambda: all(partition.log.end_offset for partition in slow))
        monkeypatch.setattr(DataDir, "empty_trash", slowly)
        await delete(asked, "t")
        await asked.create("t", WRITTEN, partitions=many)
        for hold, partition in zip(holds, slow, strict=True):
            hold.release()
            partition._syncer.request(partition)
        told = answers(await reply.filled())
        assert {answer[2] for answer in told[len(slow) :]} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        for index in some:
            asked.append("t", bytearray(dated(NOW_MS, b"new")), index)
            asked.partition("t", index).log.sync_job().run()
        unlinked.set()
    async with machine.broker() as asked:
        assert ends(asked, "t", some) == [1, 1, 1]
        segments = [each for index in some for each in asked.partition("t", index).log.segments]
        assert not any(OF_THE_DELETED in each.file.pread(each.size, 0) for each in segments)
