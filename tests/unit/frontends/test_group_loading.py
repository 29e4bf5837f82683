"""A shard that cannot be loaded for a reason nobody foresaw: its groups wait, all others are served."""

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.frontends.group_requests import active, commit, fetch, machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.waiting import until

from penstock.coordination.image import ImageDelta, Topic
from penstock.coordination.metadata import MetadataStore
from penstock.core.error_codes import ErrorCode
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.groups.decision import CoordinatorRecord
from penstock.groups.partitioning import partition_of
from penstock.groups.state import CoordinatorState
from penstock.server import service_assembly
from penstock.services.coordinator import runtime
from penstock.services.coordinator.shard import Status
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import list_groups

PAYMENTS = Topic("payments", b"p" * 16, (), {}, 0)
PLANTED, OTHER = "g", "h"  # of different shards


class PlantedError(Exception):
    pass


def shard_status(asked: Asked, group_id: str) -> Status:
    index = partition_of(group_id, 3)
    return next(
        shard for shard in asked.services.coordinator.shards() if shard.partition.index == index
    ).status


async def reached(asked: Asked, group_id: str, status: Status) -> None:
    await until(lambda: shard_status(asked, group_id) is status)


def plant(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    honest = getattr(CoordinatorState, place)

    def broken(state: CoordinatorState, *arguments: object) -> object:
        done = honest(state, *arguments)
        if PLANTED in state.groups:
            raise PlantedError
        return done

    monkeypatch.setattr(CoordinatorState, place, broken)


@pytest.mark.parametrize("place", ["apply", "hear_of_topics"])
async def test_a_shard_that_fails_to_load_holds_up_no_other_and_is_tried_again(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert partition_of(PLANTED, 3) != partition_of(OTHER, 3)
    monkeypatch.setattr(runtime, "_RETRY_SECONDS", 0.001)
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        assert await commit(asked, offset=6, group_id=OTHER) == 0
    with monkeypatch.context() as planted, caplog.at_level(logging.ERROR):
        plant(planted, place)
        async with computer.broker() as asked:
            await reached(asked, OTHER, Status.ACTIVE)
            assert (await fetch(asked, group_id=OTHER))[0][1] == 6
            for _ in range(3):  # it is tried, and fails, again and again
                await reached(asked, PLANTED, Status.LOADING)
                await reached(asked, PLANTED, Status.OFFLINE)
            assert asked.services.coordinator.unavailable == 1
            assert await commit(asked, offset=9) == ErrorCode.NOT_COORDINATOR
            assert await commit(asked, offset=8, group_id=OTHER) == 0
            planted.undo()
            await active(asked)
            assert asked.services.coordinator.unavailable == 0
            assert (await fetch(asked))[0][1] == 5
            assert (await fetch(asked, group_id=OTHER))[0][1] == 8
    told = [record.getMessage() for record in caplog.records if "fail unexpectedly" in record.message]
    assert len(told) == 1, "once, however often it is tried"
    assert f"__consumer_offsets-{partition_of(PLANTED, 3)} " in told[0]


async def test_a_shard_that_waits_for_the_latest_metadata_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has offsets of a topic that is not known here, and the store is away, so nobody can say if it is gone."""
    first, second = sorted((PLANTED, OTHER), key=lambda group_id: partition_of(group_id, 3))
    reachable = asyncio.Event()
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        for group_id in (first, second):
            assert await commit(asked, offset=5, group_id=group_id) == 0
    honest = CoordinatorState.hear_of_topics

    record = CoordinatorRecord(b"", None)

    def unsure(state: CoordinatorState, *arguments: Any) -> Any:
        found = honest(state, *arguments)
        return iter([[record]]) if first in state.groups and not reachable.is_set() else found

    async def away(metadata: MetadataStore, seconds: float) -> bool:
        return await reachable.wait()

    monkeypatch.setattr(CoordinatorState, "hear_of_topics", unsure)
    monkeypatch.setattr(service_assembly, "catch_up", away)
    async with computer.broker() as asked:
        await reached(asked, second, Status.ACTIVE)
        assert shard_status(asked, first) is Status.LOADING
        reachable.set()
        await active(asked)
        assert (await fetch(asked, group_id=first))[0][1] == 5


@pytest.mark.parametrize("place", ["expire_group", "hear_of_topics"])
async def test_what_fails_by_the_clock_or_with_a_topic_is_read_anew(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        with monkeypatch.context() as planted:
            plant(planted, place)
            await asked.services.group_offsets.expire()
            asked.services.coordinator.image_changed(ImageDelta(topics_gone=(PAYMENTS,)))
            await reached(asked, PLANTED, Status.OFFLINE)
        await active(asked)
        assert (await fetch(asked))[0][1] == 5


async def test_others_have_their_turn_while_many_groups_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 10 * TURN_ITEMS_MAX
    begun, seen = 0, [0]
    honest = CoordinatorState.begin

    def counted(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        return honest(*arguments)

    monkeypatch.setattr(CoordinatorState, "begin", counted)
    async with machine().broker() as asked:
        await prepared(asked)
        for number in range(many):
            assert await commit(asked, group_id=f"g{number}") == 0
        for shard in asked.services.coordinator.shards():
            shard.go_offline("for a test")
        while begun < many:
            seen.append(begun)
            await asyncio.sleep(0)
    steps = [after - before for before, after in pairwise([*seen, begun])]
    assert max(steps) <= 2 * TURN_ITEMS_MAX  # of two shards


@pytest.mark.parametrize("status", [Status.LOADING, Status.OFFLINE])
async def test_no_list_leaves_out_groups_that_are_out_of_service_for_a_moment(status: Status) -> None:
    """Whoever asks is told to ask again."""
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, group_id=PLANTED) == 0
        shard = asked.services.coordinator.shard_of(PLANTED)
        shard.go_offline("too few replicas have it in time")
        if status is Status.LOADING:
            shard.restart()
        assert await listed(asked) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        await reached(asked, PLANTED, Status.ACTIVE)
        assert await listed(asked) == (ErrorCode.NONE, [PLANTED])


async def listed(asked: Asked) -> tuple[int, list[str]]:
    answer = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
    return answer.error_code, [group.group_id for group in answer.groups]
