"""A broker in memory that serves transactions, with a writer of markers that does as it is told."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import AddPartitions, End, InitProducerId
from penstock.replication.transactions import MarkerToWrite
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.shard import Status

SETTINGS = {"penstock.transactions.enable": "true", "transaction.state.log.num.partitions": "3"}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class ScriptedWriter:
    """Answers with what is laid out for a partition, then with NONE; one that is held answers when it is let go."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, MarkerToWrite]] = []
        self.answers: dict[TopicPartition, deque[ErrorCode | Exception]] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.under_way = 0
        self.most_under_way = 0

    def script(self, place: TopicPartition, *answers: ErrorCode | Exception) -> None:
        self.answers.setdefault(place, deque()).extend(answers)

    async def write(self, topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        place = TopicPartition(topic, partition)
        self.written.append((place, marker))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        answers = self.answers.get(place)
        answer = answers.popleft() if answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        return answer

    def places(self) -> list[TopicPartition]:
        return [place for place, _ in self.written]


def a_machine(settings: Mapping[str, str] | None = None) -> Machine:
    return Machine({**SETTINGS, **(settings or {})})


class Serving:
    def __init__(self, asked: Asked, writer: ScriptedWriter) -> None:
        self.asked = asked
        self.writer = writer
        self.service = asked.services.transactions
        self.runtime = asked.services.transaction_coordinator

    def shard(self, transactional_id: str = "tx") -> Any:
        return self.runtime.shard_of(transactional_id)

    def state(self, transactional_id: str = "tx") -> str:
        subject = self.shard(transactional_id).state.find(transactional_id)
        return "none" if subject is None else subject.state.value

    async def active(self) -> None:
        await until(lambda: all(shard.status is Status.ACTIVE for shard in self.runtime.shards()))

    async def init(self, transactional_id: str = "tx", timeout_ms: int = 60_000, **more: Any) -> Any:
        return await told(self.service.init_producer_id, InitProducerId(transactional_id, timeout_ms, **more))

    async def add(
        self,
        producer_id: int,
        epoch: int,
        *places: TopicPartition,
        transactional_id: str = "tx",
        version: int = 0,
    ) -> Any:
        request = AddPartitions(producer_id, epoch, frozenset(places), version)
        return await told(self.service.add_partitions, transactional_id, request)

    async def end(
        self, producer_id: int, epoch: int, *, committed: bool = True, version: int = 0, name: str = "tx"
    ) -> Any:
        return await told(self.service.end, name, End(producer_id, epoch, committed, version))

    async def begun(self, *places: TopicPartition, version: int = 0) -> tuple[int, int]:
        error, producer_id, epoch = await self.init()
        assert error is ErrorCode.NONE
        assert await self.add(producer_id, epoch, *places, version=version) is ErrorCode.NONE
        return producer_id, epoch


@asynccontextmanager
async def serving(machine: Machine, writer: ScriptedWriter | None = None) -> AsyncIterator[Serving]:
    """The topic `orders` has two partitions."""
    async with machine.broker() as asked:
        serves = Serving(asked, writer or ScriptedWriter())
        asked.services.marker_sender.writer = serves.writer
        if "orders" not in asked.services.image.topics:
            await asked.create("orders", partitions=2)
            await serves.runtime.create_topic(brokers=1)
        await serves.active()
        yield serves


def later() -> PendingReply:
    return PendingReply(lambda code: code, lambda answer: answer)


async def told(ask: Any, *arguments: Any) -> Any:
    ask(*arguments, pending := later())
    filled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending.subscribe(filled.set_result)
    return await filled
