"""Groups, members and offsets that a broker has no room for: what is new is refused, what is there goes on."""

import random
from typing import Any

import pytest
from tests.unit.frontends.group_requests import active, commit, fetch, join, machine, prepared, stable, sync
from tests.unit.frontends.in_memory import Asked

from penstock.core.error_codes import ErrorCode as E
from penstock.core.limits import GROUP_BYTES, GROUP_OFFSET_BYTES
from penstock.groups.offsets.table import offset_bytes
from penstock.services.coordinator import group_room
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, join_group, leave_group, offset_delete


def fill(asked: Asked, monkeypatch: pytest.MonkeyPatch, reserve_bytes: int = 0) -> None:
    """What is there is the most there may be."""
    monkeypatch.setattr(group_room, "GROUPS_BYTES_MAX", asked.services.coordinator.size_bytes - 1)
    monkeypatch.setattr(group_room, "GROUPS_RESERVE_BYTES", reserve_bytes)


async def test_groups_that_are_new_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine().broker() as asked:
        member = await stable(asked)
        assert await commit(asked, group_id="by-hand") == 0
        fill(asked, monkeypatch)
        for number in range(5):
            refused = await join(asked, group_id=f"new-{number}")
            assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
            assert await commit(asked, group_id=f"new-{number}") == E.INVALID_COMMIT_OFFSET_SIZE
        held = {group.id for group in await asked.services.group_admin.list()}
        assert held == {"g", "by-hand"}
        assert len([line for line in caplog.messages if "that are not there yet are refused" in line]) <= 2
        assert await commit(asked, group_id="by-hand", offset=8) == 0
        joined = await join(asked, member_id=member)
        assert joined.error_code == 0, "who is a member may join again"
        assert (await sync(asked, member, generation=joined.generation_id)).error_code == 0


async def test_those_that_are_there_have_a_reserve_and_then_commit_what_they_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, metadata="note") == 0
        fill(asked, monkeypatch, reserve_bytes=GROUP_OFFSET_BYTES + len("note") + 1)
        assert await commit(asked, partition=1) == 0
        fill(asked, monkeypatch)
        for metadata, expected in (("not", E.NONE), ("", E.NONE), ("longer", E.INVALID_COMMIT_OFFSET_SIZE)):
            assert await commit(asked, offset=9, metadata=metadata) == expected
        fill(asked, monkeypatch)
        assert (await join(asked)).error_code == E.COORDINATOR_NOT_AVAILABLE, "members go: it may try again"
        assert await fetch(asked) == [(0, 9, "", 0), (1, 7, "note", 0)]


async def test_what_goes_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        runtime = asked.services.coordinator
        assert await commit(asked) == 0
        assert await commit(asked, group_id="old", partition=1) == 0
        fill(asked, monkeypatch)
        assert await commit(asked, partition=1) == E.INVALID_COMMIT_OFFSET_SIZE
        deleted = delete_groups.DeleteGroupsRequest(groups_names=["old"])
        assert (await asked.ask(ApiKey.DELETE_GROUPS, deleted, 2)).results[0].error_code == 0
        assert await commit(asked, partition=1) == 0
        topic = offset_delete.OffsetDeleteRequestTopic(
            name="orders",
            partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=n) for n in (0, 1)],
        )
        request = offset_delete.OffsetDeleteRequest(group_id="g", topics=[topic])
        assert (await asked.ask(ApiKey.OFFSET_DELETE, request, 0)).error_code == 0
        assert runtime.size_bytes == 0


async def test_those_that_are_to_become_members_go_with_their_group() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        for number in range(3):
            assert (await pending(asked, "g")).error_code == E.MEMBER_ID_REQUIRED, number
        assert asked.services.coordinator.subjects_bytes > 0
        assert await delete(asked, "g") == 0
        assert asked.services.coordinator.size_bytes == 0


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_counted_is_what_is_there_after_every_step(seed: int) -> None:
    rng = random.Random(seed)
    async with machine().broker() as asked:
        await prepared(asked)
        members: dict[str, str] = {}
        for _ in range(60):
            group = rng.choice("gh")
            match rng.randrange(5):
                case 0:
                    await pending(asked, group)
                case 1 if group not in members:
                    members[group] = (await join(asked, group_id=group)).member_id
                case 2 if group in members:
                    leaver = leave_group.MemberIdentity(member_id=members.pop(group))
                    left = leave_group.LeaveGroupRequest(group_id=group, members=[leaver])
                    assert (await asked.ask(ApiKey.LEAVE_GROUP, left, 5)).error_code == 0
                case 3:
                    await commit(
                        asked, group_id=group, partition=rng.randrange(2), metadata="x" * rng.randrange(9)
                    )
                case 4:
                    await delete(asked, group)
            check_counters(asked)


def check_counters(asked: Asked) -> None:
    for shard in asked.services.coordinator.shards():
        state = shard.state
        assert state.subjects_bytes == sum(group.size_bytes for group in state.groups.values())
        offsets = sum(offset_bytes(v.metadata) for table in state.offsets.values() for _, _, v in table.all())
        assert state.size_bytes == offsets + sum(GROUP_BYTES + len(name) for name in state.groups)


async def pending(asked: Asked, group_id: str) -> Any:
    """It is given an id, and does not come back with it."""
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = join_group.JoinGroupRequest(
        group_id=group_id, session_timeout_ms=30_000, protocol_type="consumer", protocols=protocols
    )
    return await asked.ask(ApiKey.JOIN_GROUP, request, 5)


async def delete(asked: Asked, group_id: str) -> int:
    request = delete_groups.DeleteGroupsRequest(groups_names=[group_id])
    code: int = (await asked.ask(ApiKey.DELETE_GROUPS, request, 2)).results[0].error_code
    return code


async def test_members_count_as_long_as_they_stay() -> None:
    made = machine()
    async with made.broker() as asked:
        member = await stable(asked)
        runtime = asked.services.coordinator
        alone = runtime.size_bytes
        assert alone > GROUP_BYTES + len(member)
        assert await commit(asked, member_id=member, generation_id_or_member_epoch=1) == 0
        with_offset = runtime.size_bytes
        assert with_offset == alone + GROUP_OFFSET_BYTES + len("note")
    async with made.broker() as asked:
        await active(asked)
        assert asked.services.coordinator.size_bytes == with_offset, "read back, it takes as much"


async def test_more_than_may_be_is_loaded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine()
    async with made.broker() as asked:
        await prepared(asked)
        for number in range(5):
            assert await commit(asked, group_id=f"g{number}") == 0
    monkeypatch.setattr(group_room, "GROUPS_BYTES_MAX", 1)
    monkeypatch.setattr(group_room, "GROUPS_RESERVE_BYTES", 0)
    async with made.broker() as asked:
        await active(asked)
        assert len(await asked.services.group_admin.list()) == 5
        for number in range(5):
            assert await commit(asked, group_id=f"g{number}", offset=8) == 0
            assert (await fetch(asked, group_id=f"g{number}"))[0][:2] == (0, 8)
