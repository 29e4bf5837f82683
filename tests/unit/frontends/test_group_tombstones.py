"""Offsets given up by the thousand: stored in turns, and at no point in between is anything told that is not so."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import pytest
from tests.unit.frontends.group_requests import active, commit, fetch, join, machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.groups.offsets.commit import Committer
from penstock.services.coordinator.group_kind import GroupShard
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.topics.deletions import TopicReference
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, list_groups, offset_fetch

MANY = 20 * TURN_ITEMS_MAX
NOTHING = [(0, -1, "", 0), (1, -1, "", 0)]


async def committed(asked: Asked, group_id: str = "g", topic: str = "orders", retention_ms: int = -1) -> None:
    """Many offsets; of the first two partitions clients may ask."""
    topic_id = asked.services.image.topics[topic].id
    entries = [(topic, topic_id, partition, 5, -1, "note") for partition in range(MANY)]
    later = PendingReply(lambda code: code, lambda codes: codes)
    asked.services.group_offsets.commit(Committer(group_id, "", None, -1, 4), entries, retention_ms, later)
    assert set(await arrival(later)) == {ErrorCode.NONE}


def shard_of(asked: Asked, group_id: str = "g") -> GroupShard:
    return asked.services.coordinator.shard_of(group_id)


def stored(asked: Asked) -> int:
    """How many offsets are in memory, shown or not."""
    shards = asked.services.coordinator.shards()
    return sum(len(table) for shard in shards for table in shard.state.offsets.values())


class ByHand:
    """What is done in turns goes on when it is told to."""

    def __init__(self, asked: Asked) -> None:
        self.under_way: list[Iterator[None]] = []
        asked.services.coordinator.in_turns = self.under_way.append

    def step(self, first: int | None = None) -> None:
        for steps in self.under_way[:first]:
            next(steps, None)

    def finish(self) -> None:
        while self.under_way:
            for _ in self.under_way.pop():
                pass


async def delete_topic(asked: Asked) -> None:
    await asked.services.topics.delete([TopicReference("orders")], timeout_ms=10_000)


async def delete_group(asked: Asked) -> int:
    request = delete_groups.DeleteGroupsRequest(groups_names=["g"])
    return int((await asked.ask(ApiKey.DELETE_GROUPS, request, 2)).results[0].error_code)


async def delete_groups_at_once(asked: Asked) -> None:
    names = ["there-is-none", "g", "h"]
    request = delete_groups.DeleteGroupsRequest(groups_names=names)
    results = (await asked.ask(ApiKey.DELETE_GROUPS, request, 2)).results
    assert [(result.group_id, result.error_code) for result in results] == list(
        zip(names, [69, 0, 0], strict=True)
    )


async def expire(asked: Asked) -> None:
    await asked.services.group_offsets.expire()


@pytest.mark.parametrize("give_up", [delete_topic, delete_groups_at_once, expire])
async def test_others_have_their_turn(give_up: Callable[[Asked], Awaitable[None]]) -> None:
    left = []

    async def others() -> None:
        while True:
            left.append(stored(asked))
            await asyncio.sleep(0)

    async with machine().broker() as asked:
        await prepared(asked)
        for group_id in ("g", "h"):
            await committed(asked, group_id, retention_ms=0)
        meanwhile = asyncio.create_task(others())
        await asyncio.sleep(0)
        await give_up(asked)
        await until(lambda: not stored(asked))
        await asyncio.sleep(0)
        meanwhile.cancel()
        listed = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
        assert listed.groups == []
    steps = [before - after for before, after in pairwise(left)]
    assert max(steps) <= 4 * TURN_ITEMS_MAX  # two shards, and what one of them may store at once


@pytest.mark.parametrize("version", [1, 7, 9, 10])
@pytest.mark.parametrize("everything", [False, True])
async def test_offsets_that_are_not_dropped_yet_are_not_told(version: int, everything: bool) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await committed(asked)
        by_hand = ByHand(asked)
        await delete_topic(asked)
        await asked.create("orders", partitions=2)
        everything = everything and version > 1  # which cannot ask for all
        nothing = [] if everything else NOTHING
        for left in (MANY, MANY - TURN_ITEMS_MAX):
            assert stored(asked) == left
            assert await fetch(asked, version, everything=everything) == nothing
            by_hand.step()
        by_hand.finish()
        assert stored(asked) == 0
        assert await fetch(asked, version, everything=everything) == nothing


async def test_what_is_committed_meanwhile_for_a_topic_made_again_is_kept() -> None:
    computer = machine()
    expected = [(0, 3, "note", 0), (1, 4, "note", 0)]
    async with computer.broker() as asked:
        await prepared(asked)
        await committed(asked)
        by_hand = ByHand(asked)
        await delete_topic(asked)
        await asked.create("orders", partitions=2)
        assert await commit(asked, offset=3, partition=0) == 0  # before its tombstone, and behind it
        by_hand.step()
        assert await commit(asked, offset=4, partition=1) == 0
        assert await fetch(asked) == await fetch(asked, everything=True) == expected
        by_hand.finish()
        assert stored(asked) == 2
        assert await fetch(asked) == expected
    async with computer.broker() as asked:
        await active(asked)
        assert stored(asked) == 2
        assert await fetch(asked) == expected


@pytest.mark.parametrize("crash", [True, False])
@pytest.mark.parametrize("steps", [0, 1])
async def test_groups_that_go_out_of_service_meanwhile_hear_of_it_when_they_are_loaded(
    steps: int, crash: bool
) -> None:
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        await asked.create("payments", partitions=MANY)
        await committed(asked, topic="payments")
        await committed(asked)
        by_hand = ByHand(asked)
        await delete_topic(asked)
        await asked.create("orders", partitions=2)
        for _ in range(steps):
            by_hand.step()
        assert stored(asked) == 2 * MANY - steps * TURN_ITEMS_MAX
        if not crash:
            begun = len(by_hand.under_way)
            shard_of(asked).go_offline("for a test")
            await active(asked)
            by_hand.step(begun)  # what was begun for the state before is not for this one
            assert await fetch(asked) == NOTHING
            by_hand.finish()
            assert stored(asked) == MANY, "nothing of a topic that lives is dropped"
    if crash:
        async with computer.broker() as asked:
            by_hand = ByHand(asked)
            await active(asked)
            assert await fetch(asked) == NOTHING
            by_hand.finish()
            await asyncio.sleep(0)
            assert stored(asked) == MANY


async def test_topics_deleted_one_after_the_other_are_all_heard_of() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await asked.create("payments", partitions=2)
        await committed(asked)
        await committed(asked, topic="payments")
        by_hand = ByHand(asked)
        await delete_topic(asked)
        by_hand.step()
        await asked.services.topics.delete([TopicReference("payments")], timeout_ms=10_000)
        by_hand.finish()
        assert stored(asked) == 0
        assert not shard_of(asked).state.groups
        assert shard_of(asked).unheard is None, "nobody has to look at the topics any more"


async def test_half_of_a_group_is_shown_to_nobody() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await committed(asked)
        by_hand = ByHand(asked)
        deletion = asyncio.create_task(delete_group(asked))
        await asyncio.sleep(0)
        by_hand.step()
        assert stored(asked) == MANY - TURN_ITEMS_MAX
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
        request = offset_fetch.OffsetFetchRequest(groups=[group])
        fetched = (await asked.ask(ApiKey.OFFSET_FETCH, request, 9)).groups[0]
        assert (fetched.error_code, fetched.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert await commit(asked, offset=9) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await join(asked)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await delete_group(asked) == ErrorCode.GROUP_ID_NOT_FOUND
        await expire(asked)
        listed = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
        assert listed.groups == []
        by_hand.finish()
        assert await deletion == 0
        assert await fetch(asked) == NOTHING
        assert await commit(asked, offset=9) == 0


@pytest.mark.parametrize("steps", [0, 1])
async def test_half_of_a_group_is_left_when_its_shard_goes_out_of_service(steps: int) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await asked.create("payments", partitions=MANY)
        await committed(asked, topic="payments")
        by_hand = ByHand(asked)
        deletion = asyncio.create_task(delete_group(asked))
        await asyncio.sleep(0)
        for _ in range(steps):
            by_hand.step()
        shard_of(asked).flush()
        shard_of(asked).go_offline("for a test")
        await active(asked)
        by_hand.finish()
        assert await deletion == ErrorCode.NOT_COORDINATOR
        assert stored(asked) == MANY - steps * TURN_ITEMS_MAX
        again = asyncio.create_task(delete_group(asked))
        await asyncio.sleep(0)
        by_hand.finish()
        assert await again == 0
        assert stored(asked) == 0
