"""A second kind of coordinator on the same shards: accounts, with amounts that a transaction adds to them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.waiting import until

from penstock.config.broker import BrokerConfig
from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import NEVER, CoordinatorRecord, Decision, KnownTopics, Now
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.control import transaction_end_key
from penstock.records.reader import iter_batches
from penstock.replication.table import Topic
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.runtime import CoordinatorRuntime
from penstock.services.coordinator.shard import Shard, Status
from penstock.services.topics.plans import WantedTopic

PRODUCER = BatchOptions(producer_id=7, producer_epoch=2, transactional=True)


@dataclass
class Account:
    id: str
    amount: int = 0
    earliest: float = NEVER
    armed_at: float = NEVER
    size_bytes: int = 0


@dataclass
class Accounts:
    size_bytes: int = 0
    subjects_bytes: int = 0
    known: dict[str, Account] = field(default_factory=dict)
    pending: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    asked: list[PendingReply] = field(default_factory=list)

    def apply(self, key: bytes | None, value: bytes | None, offset: int = -1, producer_id: int = -1) -> bool:
        assert key is not None
        assert value is not None
        self.offsets.append(offset)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append((key.decode(), int(value)))
        else:
            self.add(key.decode(), int(value))
        return True

    def add(self, name: str, amount: int) -> None:
        self.known.setdefault(name, Account(name)).amount += amount

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        for name, amount in self.pending.pop(producer_id, []):
            if committed:
                self.add(name, amount)

    def subjects(self) -> Iterable[Account]:
        return self.known.values()

    def holds(self, subject: Account) -> bool:
        return self.known.get(subject.id) is subject

    def begin(self, subject: Account, settings: int, now: Now) -> Decision:
        subject.earliest = now.seconds if subject.id == "savings" else NEVER
        return Decision()

    def expire(self, subject: Account, settings: int, now: Now) -> Decision:
        """Interest: each time it is looked at, once."""
        subject.earliest = NEVER
        subject.amount += settings
        out = Decision()
        out.records.append(CoordinatorRecord(subject.id.encode(), b"%d" % settings))
        return out

    def waiting(self, subject: Account) -> Iterable[PendingReply]:
        return self.asked

    def hear_of_topics(
        self, topics: KnownTopics, names: Iterable[str] | None = None
    ) -> Iterator[list[CoordinatorRecord]]:
        self.heard += [f"{name}: {(topics(name) or (b'', 0))[1]}" for name in names or ()]
        return iter(())


class AccountKind:
    topic = "__accounts"
    subjects = "accounts"

    def partition_of(self, key: str, partitions: int) -> int:
        return len(key) % partitions

    def machine(self) -> Accounts:
        return Accounts()

    def settings(self, config: BrokerConfig, topic: Topic | None) -> int:
        return 3

    def wanted_topic(self, config: BrokerConfig, brokers: int) -> WantedTopic:
        return WantedTopic(self.topic, partitions=2, replication_factor=1, configs=())

    def load_bytes(self, config: BrokerConfig) -> int:
        return 100

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        return 50


@asynccontextmanager
async def coordinating(machine: Machine) -> AsyncIterator[tuple[Asked, "CoordinatorRuntime[Accounts, int]"]]:
    async with machine.broker() as asked:
        services = asked.services
        loop = asyncio.get_running_loop()

        async def caught_up(seconds: float) -> bool:
            return True

        runtime = CoordinatorRuntime(
            AccountKind(),
            loop,
            None,
            services.clock,
            services.coordinator.rng,
            services.table,
            services.writer,
            services.topics,
            services.image,
            caught_up,
            services.config,
        )
        await runtime.create_topic(brokers=1)
        running = asyncio.create_task(runtime.run())
        try:
            while any(shard.status is not Status.ACTIVE for shard in runtime.shards()):  # noqa: ASYNC110
                await asyncio.sleep(0)
            yield asked, runtime
        finally:
            running.cancel()


def later() -> PendingReply:
    return PendingReply(lambda code: code, lambda answer: answer)


async def answer_to(pending: PendingReply) -> Any:
    filled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending.subscribe(filled.set_result)
    return await filled


def stored(asked: Asked, index: int) -> list[tuple[int, int, bool]]:
    """Of each batch the producer, how many records it has, and whether it is a control batch."""
    log = asked.partition("__accounts", index).log
    found = log.read(0, 1 << 20, log.end(), at_least_one=True)
    assert found is not None
    data = found.file.pread(found.size, found.position)
    return [(header.producer_id, header.record_count, header.is_control) for _, header in iter_batches(data)]


async def added(shard: "Shard[Accounts, int]", name: str, amount: int) -> None:
    shard.store([CoordinatorRecord(name.encode(), b"%d" % amount)])
    shard.answer(pending := later(), "stored")
    assert await answer_to(pending) == "stored"


def add_in_transaction(shard: "Shard[Accounts, int]", name: str, amount: int) -> None:
    key, value = name.encode(), b"%d" % amount
    shard.state.apply(key, value, producer_id=PRODUCER.producer_id)
    shard.append_applied(key, value, 0, PRODUCER)


def marker(*, committed: bool) -> bytearray:
    builder = BatchBuilder(BatchOptions(producer_id=7, producer_epoch=2, transactional=True, control=True))
    builder.append(bytes(6), key=transaction_end_key(committed=committed))
    return builder.build()


async def test_what_was_stored_is_there_after_a_restart_and_each_key_has_its_shard() -> None:
    machine = Machine()
    async with coordinating(machine) as (asked, runtime):
        assert runtime.shard_of("a") is not runtime.shard_of("bb")
        await added(runtime.shard_of("a"), "a", 5)
        await added(runtime.shard_of("bb"), "bb", 6)
        assert stored(asked, 1) == [(-1, 1, False)]
    async with coordinating(machine) as (_, runtime):
        assert runtime.shard_of("a").state.known["a"].amount == 5
        assert runtime.shard_of("a").state.offsets == [0]
        assert runtime.shard_of("bb").state.known["bb"].amount == 6


async def test_deadlines_are_kept_after_a_restart() -> None:
    machine = Machine()
    async with coordinating(machine) as (_, runtime):
        await added(runtime.shard_of("savings"), "savings", 5)
    async with coordinating(machine) as (_, runtime):
        account = runtime.shard_of("savings").state.known["savings"]
        while account.amount == 5:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert account.amount == 8
        shard = runtime.shard_of("savings")
        shard.answer(pending := later(), "all of it")
        assert await answer_to(pending) == "all of it"
    async with coordinating(machine) as (_, runtime):
        assert runtime.shard_of("savings").state.known["savings"].amount == 8


async def test_a_transaction_counts_when_it_has_ended() -> None:
    machine = Machine()
    async with coordinating(machine) as (asked, runtime):
        shard = runtime.shard_of("a")
        await added(shard, "a", 1)
        for committed, amount in ((True, 10), (False, 100)):
            add_in_transaction(shard, "a", amount)
            shard.end_transaction(marker(committed=committed), 7, committed=committed, later=(end := later()))
            assert await answer_to(end) is ErrorCode.NONE
        add_in_transaction(shard, "a", 1000)
        await added(shard, "a", 2)
        assert shard.state.known["a"].amount == 13
        ended = [(7, 1, False), (7, 1, True)]
        assert stored(asked, 1) == [(-1, 1, False), *ended, *ended, (7, 1, False), (-1, 1, False)]
    async with coordinating(machine) as (_, runtime):
        state = runtime.shard_of("a").state
        assert (state.known["a"].amount, state.pending) == (13, {7: [("a", 1000)]})


async def test_a_marker_that_cannot_be_written_takes_the_shard_offline() -> None:
    async with coordinating(Machine()) as (asked, runtime):
        shard = runtime.shard_of("a")
        add_in_transaction(shard, "a", 10)
        shard.flush()
        asked.partition("__accounts", 1).log.sync_failed()
        shard.end_transaction(marker(committed=True), 7, committed=True, later=(end := later()))
        assert await answer_to(end) is ErrorCode.NOT_COORDINATOR
        shard.end_transaction(marker(committed=True), 7, committed=True, later=(end := later()))
        assert await answer_to(end) is ErrorCode.NOT_COORDINATOR


async def test_who_waits_is_turned_away_when_it_goes_offline() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("a")
        await added(shard, "a", 1)
        shard.state.asked.append(waiting := later())
        shard.go_offline("for a test")
        assert await answer_to(waiting) is ErrorCode.NOT_COORDINATOR


async def test_it_hears_of_topics_that_are_made_grow_and_go() -> None:
    async with coordinating(Machine()) as (asked, runtime):
        shard, metadata = runtime.shard_of("a"), asked.broker.metadata
        asked.broker.image_news.register(runtime.image_changed)
        await asked.create("t")
        await until(lambda: shard.unheard is None)
        topic = metadata.image.topics["t"]
        await metadata.create_partitions("t", topic.partitions)
        await until(lambda: shard.unheard is None)
        await metadata.delete_topic("t")
        await until(lambda: shard.unheard is None)
        assert shard.state.heard == ["t: 1", "t: 2", "t: 0"]
