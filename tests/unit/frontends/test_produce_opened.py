"""Produce to a topic whose batches are opened: its connection is held up until they are appended, and no longer."""

import asyncio
import threading
from typing import Any

import pytest
from tests.integration.raw import make_batch, produce_request
from tests.unit.frontends.in_memory import Machine
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.lease import Work
from penstock.core.limits import BATCHES_OPENED_MAX
from penstock.replication.table import Topic
from penstock.services.writer import Writer
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection

LARGE = bytes(5000)  # not opened on the loop


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = ClientConnection("tester")

    def produce(self, acks: int, batch: bytes | None = None) -> None:
        request = produce_request("t", [(0, batch or make_batch([LARGE]))], acks)
        self._writer.write(self._connection.send(ApiKey.PRODUCE, 9, request, answered=acks != 0)[1])

    async def answers(self, count: int) -> list[Any]:
        return [result.base_offset for result in await self.results(count)]

    async def results(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            data = await self._reader.read(1 << 16)
            assert data, "the connection was closed"
            found += self._connection.receive(data)
        return [answer.message().responses[0].partition_responses[0] for answer in found]

    def close(self) -> None:
        self._writer.close()


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_next_request_does_not_wait_for_the_commit_of_the_one_before(acks: int) -> None:
    async with Machine().broker() as asked, asyncio.timeout(10):
        await asked.create("t", {"compression.type": "gzip"})
        partition = asked.partition("t")
        partition.sync_before_ack = True
        hold = partition.lease.take(Work.SYNC)  # nothing is committed
        assert hold is not None
        client = Client(*await asyncio.open_connection("127.0.0.1", asked.broker.port))
        for _ in range(3):
            client.produce(acks)
        while partition.log.end_offset < 3:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0)
        assert partition.high_watermark == 0
        partition.set_sync_before_ack(False)
        hold.release()
        assert await client.answers(3) == [0, 1, 2]
        client.close()


async def test_no_answer_to_acks_0_holds_up_no_other_answer() -> None:
    async with Machine().broker() as asked, asyncio.timeout(10):
        await asked.create("t", {"compression.type": "gzip"})
        client = Client(*await asyncio.open_connection("127.0.0.1", asked.broker.port))
        for acks in (0, 0, 1):
            client.produce(acks)
        assert await client.answers(1) == [2]
        client.close()


async def test_a_replica_that_is_moved_away_while_its_batch_is_opened_is_led_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine().broker() as asked, asyncio.timeout(10):
        await asked.create("t", {"cleanup.policy": "compact"})
        topic = asked.broker.table.by_name[b"t"]

        def move_away(*_: object) -> Any:
            topic.led, topic.partitions = {}, {}
            raise ApiError(ErrorCode.INVALID_RECORD)  # which its leader will find out

        monkeypatch.setattr(Writer, "open_batch", move_away)
        partitions = topic.partitions
        client = Client(*await asyncio.open_connection("127.0.0.1", asked.broker.port))
        client.produce(1)
        (result,) = await client.results(1)
        topic.led, topic.partitions = partitions, partitions
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        client.close()


async def test_what_a_client_sent_that_is_gone_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else anybody could leave any number of requests behind, each with its memory, that wait to be opened."""
    may_go_on, opened = threading.Event(), []
    open_batch = Writer.open_batch

    def open_slowly(self: Writer, topic: Topic, index: int, batch: memoryview, *limit: Any) -> Any:
        opened.append(len(batch))
        assert may_go_on.wait(10)
        return open_batch(self, topic, index, batch, *limit)

    async with Machine().broker() as asked, asyncio.timeout(10):
        await asked.create("t", {"cleanup.policy": "compact"})
        monkeypatch.setattr(Writer, "open_batch", open_slowly)
        connections = asked.broker.connections
        clients = []
        for _ in range(BATCHES_OPENED_MAX + 3):
            clients.append(Client(*await asyncio.open_connection("127.0.0.1", asked.broker.port)))
            clients[-1].produce(1)
        await until(lambda: len(connections._tasks) == len(clients) and len(opened) == BATCHES_OPENED_MAX)
        for connection in list(connections._all):
            connection.abort()
        await until(lambda: not connections.count)
        may_go_on.set()
        await until(lambda: not connections._tasks)
        assert len(opened) == BATCHES_OPENED_MAX
        for client in clients:
            client.close()
