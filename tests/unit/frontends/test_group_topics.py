"""Offsets of topics that are deleted and made again, whatever their groups' shards do meanwhile."""

import asyncio
import random

import pytest
from tests.unit.frontends.group_requests import active, commit, fetch, machine, prepared
from tests.unit.frontends.in_memory import Asked

from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.services.coordinator.shard import Status
from penstock.services.topics.deletions import TopicReference

NOTHING = [(0, -1, "", 0), (1, -1, "", 0)]
STATE = PartitionState(replicas=(1,), isr=(1,), leader=1)


async def delete(asked: Asked) -> None:
    await asked.services.topics.delete([TopicReference("orders")], timeout_ms=10_000)


@pytest.mark.parametrize("loading", [True, False])
@pytest.mark.parametrize("version", [4, 9, 10])
async def test_a_topic_is_deleted_while_groups_are_not_in_service(version: int, loading: bool) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        retention = {"retention_time_ms": 10**9} if version == 4 else {}
        assert await commit(asked, version, offset=5, **retention) == 0
        coordinator = asked.services.coordinator
        for shard in coordinator.shards():
            shard.go_offline("for a test")
            if loading:
                shard.restart()
        await delete(asked)
        await asked.create("orders", partitions=2)
        await active(asked)
        assert await fetch(asked) == NOTHING


async def test_a_topic_is_made_again_in_one_change() -> None:
    """As a broker sees it that was away from the store for a while, and reads everything anew."""
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        asked.tree.disconnect()
        tree = await computer.store.connect()
        other = MetadataStore(tree, random.Random(2))
        await other.load()
        await other.delete_topic("orders")
        await other.create_topics([NewTopic("orders", [STATE, STATE])])
        asked.broker.metadata.attach(tree)
        await asked.broker.metadata.load()
        assert await fetch(asked) == NOTHING


async def test_a_topic_is_made_again_while_the_broker_is_away() -> None:
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        asked.tree.disconnect()
    other = MetadataStore(await computer.store.connect(), random.Random(2))
    await other.load()
    await other.delete_topic("orders")
    await other.create_topics([NewTopic("orders", [STATE, STATE])])
    async with computer.broker() as asked:
        await active(asked)
        assert await fetch(asked) == NOTHING
        assert await commit(asked, offset=3) == 0
    async with computer.broker() as asked:
        await active(asked)
        assert (await fetch(asked))[0] == (0, 3, "note", 0)


async def test_an_offset_of_a_topic_that_is_not_known_yet_is_kept() -> None:
    """Where a shard moves to a broker that hears of changes late, what it does not know may be yet to come."""
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        coordinator, image = asked.services.coordinator, asked.services.image
        known, honest = image.topics.pop("orders"), coordinator._catch_up
        caught_up = asyncio.Event()

        async def late(timeout_s: float) -> bool:
            await caught_up.wait()
            image.topics["orders"] = known
            return await honest(timeout_s)

        coordinator._catch_up = late
        shard = coordinator.shard_of("g")
        shard.go_offline("for a test")
        for _ in range(20):
            await asyncio.sleep(0)
        assert shard.status is Status.LOADING
        caught_up.set()
        await active(asked)
        assert (await fetch(asked))[0] == (0, 5, "note", 0)
