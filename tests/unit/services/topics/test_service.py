"""Topics under concurrency and failure: one winner, no half changes, an answer for everybody."""

import asyncio
import random
from collections.abc import Mapping

import pytest
from tests.unit.waiting import until

from penstock.config.broker import BrokerConfig
from penstock.coordination.memory import Fault, MemoryStore, MemoryTree
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFullError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.services.coordinator.group_kind import GroupKind
from penstock.services.topics.deletions import TopicReference
from penstock.services.topics.plans import WantedTopic
from penstock.services.topics.service import CreatedTopic, MorePartitions, TopicService

CONFIG = BrokerConfig.resolve({})


class Disk:
    """Stands for hosting: counts, and can be held up or broken."""

    def __init__(self) -> None:
        self.reconciled = 0
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def reconcile(self) -> None:
        self.entered.set()
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.reconciled += 1
        self.left.set()


class Node:
    """One process: its own view of the store, its own service."""

    def __init__(self, tree: MemoryTree, number: int) -> None:
        self.tree = tree
        self.disk = Disk()
        self.metadata = MetadataStore(tree, random.Random(number))
        self.topics = TopicService(self.metadata, self.disk.reconcile, number)

    @classmethod
    async def on(cls, store: MemoryStore, number: int = 1) -> "Node":
        node = cls(await store.connect(), number)
        await node.metadata.load()
        await node.metadata.register_broker(BrokerRegistration(number, f"dir-{number}", "host", 9092))
        return node

    async def create(self, *names: str, timeout_ms: int = 5000) -> dict[str, ErrorCode | None]:
        created = await self.topics.create(
            [WantedTopic(name) for name in names], CONFIG, timeout_ms=timeout_ms
        )
        return {name: error.code if isinstance(error, ApiError) else None for name, error in created.items()}

    async def delete(self, name: str) -> ErrorCode | None:
        (deletion,) = await self.topics.delete([TopicReference(name)], timeout_ms=5000)
        return None if deletion.error is None else deletion.error.code


async def test_of_many_that_create_the_same_topic_one_wins() -> None:
    node = await Node.on(MemoryStore())
    outcomes = await asyncio.gather(*(node.create("t") for _ in range(10)))
    codes = [outcome["t"] for outcome in outcomes]
    assert codes.count(None) == 1
    assert codes.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 9


async def test_of_two_names_that_collide_one_wins_also_at_the_same_moment() -> None:
    node = await Node.on(MemoryStore())
    first, second = await asyncio.gather(node.create("a.b"), node.create("a_b"))
    assert (first, second) == ({"a.b": None}, {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION})


async def test_a_topic_somebody_else_takes_meanwhile_does_not_spoil_the_rest_of_the_request() -> None:
    store = MemoryStore()
    here, there = await Node.on(store, 1), await Node.on(store, 2)
    assert await there.create("taken") == {"taken": None}
    assert "taken" not in here.metadata.image.topics
    assert await here.create("taken", "free") == {"taken": ErrorCode.TOPIC_ALREADY_EXISTS, "free": None}


async def test_creation_and_deletion_race_to_one_of_two_clean_ends() -> None:
    node = await Node.on(MemoryStore())
    for _ in range(20):
        await asyncio.gather(node.create("t"), node.delete("t"), node.create("t"), node.delete("t"))
        tree = await node.tree.snapshot()
        present = "t" in node.metadata.image.topics
        assert present == ("/topics/t" in tree.nodes)
        assert node.metadata.image.orphans() == []


async def test_a_topic_made_again_has_another_id() -> None:
    node = await Node.on(MemoryStore())
    ids = set()
    for _ in range(3):
        assert await node.create("t") == {"t": None}
        ids.add(node.metadata.image.topics["t"].id)
        assert await node.delete("t") is None
    assert len(ids) == 3
    assert await node.delete("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_answer_waits_for_the_disk() -> None:
    node = await Node.on(MemoryStore())
    node.disk.open.clear()
    creation = asyncio.ensure_future(node.create("t"))
    await node.disk.entered.wait()
    assert "t" in node.metadata.image.topics
    assert not creation.done()
    node.disk.open.set()
    assert await creation == {"t": None}
    assert node.disk.reconciled == 1


async def test_a_request_that_runs_out_of_time_is_told_so_and_finished_all_the_same() -> None:
    node = await Node.on(MemoryStore())
    node.disk.open.clear()
    assert await node.create("t", timeout_ms=1) == {"t": ErrorCode.REQUEST_TIMED_OUT}
    node.disk.open.set()
    await node.disk.left.wait()
    assert await node.create("t") == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}


async def held_up(node: Node) -> "tuple[asyncio.Event, asyncio.Task[dict[str, ErrorCode | None]]]":
    """A change that has its turn until the event is set."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def check_headroom(_: Mapping[int, int]) -> None:
        began.set()
        await go_on.wait()

    node.topics = TopicService(node.metadata, node.disk.reconcile, 1, check_headroom=check_headroom)
    first = asyncio.ensure_future(node.create("first", timeout_ms=60_000))
    await began.wait()
    return go_on, first


async def test_what_ran_out_of_time_before_its_turn_is_not_begun() -> None:
    node = await Node.on(MemoryStore())
    go_on, first = await held_up(node)
    for _ in range(20):
        assert await node.create("late", timeout_ms=1) == {"late": ErrorCode.REQUEST_TIMED_OUT}
    await until(lambda: len(node.topics._tasks) == 1)
    go_on.set()
    assert await first == {"first": None}
    assert await node.create("next") == {"next": None}
    assert set(node.metadata.image.topics) == {"first", "next"}


async def test_a_client_that_left_before_its_turn_is_not_waited_for() -> None:
    node = await Node.on(MemoryStore())
    go_on, first = await held_up(node)
    left = asyncio.ensure_future(node.create("left", timeout_ms=60_000))
    await until(lambda: len(node.topics._waiting) == 1)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    go_on.set()
    assert await first == {"first": None}
    assert await node.create("next") == {"next": None}
    assert set(node.metadata.image.topics) == {"first", "next"}


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_time_nothing_is_begun(timeout_ms: int) -> None:
    node = await Node.on(MemoryStore())
    assert await node.create("t", timeout_ms=timeout_ms) == {"t": ErrorCode.REQUEST_TIMED_OUT}
    assert node.metadata.image.topics == {}


async def test_names_given_twice_are_refused_and_others_created() -> None:
    node = await Node.on(MemoryStore())
    outcome = await node.create("twice", "once", "twice")
    assert list(outcome.items()) == [("once", None), ("twice", ErrorCode.INVALID_REQUEST)]
    assert set(node.metadata.image.topics) == {"once"}


async def test_validation_alone_writes_nothing_and_still_describes_the_topic() -> None:
    node = await Node.on(MemoryStore())
    wanted = [WantedTopic("t", partitions=3, configs=[("retention.ms", "5")])]
    (created,) = (await node.topics.create(wanted, CONFIG, timeout_ms=5000, validate_only=True)).values()
    assert isinstance(created, CreatedTopic)
    assert (created.partitions, created.replication_factor, created.config.retention_ms) == (3, 1, 5)
    assert created.id != bytes(16)
    assert node.metadata.image.topics == {}
    assert node.disk.reconciled == 0


async def test_too_many_partitions_refuse_the_whole_request() -> None:
    node = await Node.on(MemoryStore())
    wanted = [WantedTopic("small", 1), WantedTopic("large", 10_000)]
    created = await node.topics.create(wanted, CONFIG, timeout_ms=5000)
    assert [error.code for error in created.values() if isinstance(error, ApiError)] == [
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert node.metadata.image.topics == {}


async def test_a_lost_store_is_reported_per_topic() -> None:
    node = await Node.on(MemoryStore())
    node.tree.fail_next(Fault.REQUEST_LOST)
    assert await node.create("t") == {"t": ErrorCode.REQUEST_TIMED_OUT}
    assert await node.create("t") == {"t": None}
    node.tree.fail_next(Fault.REQUEST_LOST)
    assert await node.delete("t") is ErrorCode.REQUEST_TIMED_OUT
    node.tree.fail_next(Fault.REQUEST_LOST)
    grown = await node.topics.create_partitions([("t", MorePartitions(2))], timeout_ms=5000)
    assert [error and error.code for error in grown.values()] == [ErrorCode.REQUEST_TIMED_OUT]


async def test_a_creation_whose_answer_was_lost_comes_true_when_it_is_asked_for_again() -> None:
    node = await Node.on(MemoryStore())
    node.tree.fail_next(Fault.ANSWER_LOST)
    assert await node.create("t") == {"t": ErrorCode.REQUEST_TIMED_OUT}
    assert await node.create("t") == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert node.disk.reconciled == 1


async def test_a_full_disk_does_not_undo_what_is_written(caplog: pytest.LogCaptureFixture) -> None:
    node = await Node.on(MemoryStore())
    node.disk.failure = DiskFullError("no space left")
    assert await node.create("t") == {"t": None}
    assert "could not follow" in caplog.text


async def test_automatic_creation_takes_what_it_can_and_leaves_internal_topics_alone() -> None:
    node = await Node.on(MemoryStore())
    await node.create("a.b")
    await node.topics.create_automatically(["new", "a_b", "__consumer_offsets"], CONFIG)
    assert set(node.metadata.image.topics) == {"a.b", "new"}


async def test_replicas_come_from_all_live_brokers() -> None:
    store = MemoryStore()
    here = await Node.on(store, 1)
    await Node.on(store, 2)
    await here.metadata.load()
    wanted = [WantedTopic("t", partitions=4, replication_factor=2)]
    await here.topics.create(wanted, CONFIG, timeout_ms=5000)
    states = here.metadata.image.topics["t"].partitions
    assert sorted(state.leader for state in states) == [1, 1, 2, 2]
    assert all(set(state.replicas) == {1, 2} and state.isr == state.replicas for state in states)
    await here.topics.create_partitions([("t", MorePartitions(6))], timeout_ms=5000)
    states = here.metadata.image.topics["t"].partitions
    assert sorted(state.leader for state in states) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("name", sorted({GroupKind.topic, *INTERNAL_TOPICS}))
async def test_what_is_found_by_a_partition_count_never_gets_another_one(name: str) -> None:
    node = await Node.on(MemoryStore())
    await node.create(name)
    for validate_only in (True, False):
        grown = await node.topics.create_partitions(
            [(name, MorePartitions(2))], timeout_ms=5000, validate_only=validate_only
        )
        assert [error and error.code for error in grown.values()] == [ErrorCode.INVALID_PARTITIONS]
    assert len(node.metadata.image.topics[name].partitions) == 1
