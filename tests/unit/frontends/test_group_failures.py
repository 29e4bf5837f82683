"""What nobody foresaw, between a change of a group in memory and its append: memory never runs ahead of the log."""

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.frontends.group_requests import active, commit, fetch, join, machine, prepared
from tests.unit.frontends.in_memory import Asked

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.services.coordinator import shard as shards
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, offset_delete
from penstock.wire.kafka.generated.join_group import JoinGroupRequestProtocol


class PlantedError(Exception):
    pass


class Faults:
    """Raises at the next call of a step on the way to the log."""

    def __init__(self) -> None:
        self.step = ""

    def reach(self, step: str) -> None:
        if self.step == step:
            self.step = ""
            raise PlantedError(step)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    planted = Faults()

    class FaultyBuilder(BatchBuilder):
        def append(self, value, **fields):  # type: ignore[no-untyped-def]
            planted.reach("append")
            return super().append(value, **fields)

        def build(self) -> bytearray:
            planted.reach("build")
            return super().build()

    monkeypatch.setattr(shards, "BatchBuilder", FaultyBuilder)
    return planted


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_offset_kept_as_long_as_can_be_asked_for_is_there_after_a_restart(version: int) -> None:
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        assert await commit(asked, version, offset=77, retention_time_ms=2**63 - 1) == 0
        before = await fetch(asked)
        assert before[0][1] == 77
    async with computer.broker() as asked:
        await active(asked)
        assert await fetch(asked) == before


async def _commit(asked: Asked) -> int:
    return await commit(asked, offset=9)


async def _join(asked: Asked) -> int:
    return int((await join(asked, version=3)).error_code)


async def _delete_group(asked: Asked) -> int:
    answer = await asked.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(groups_names=["g"]), 2)
    return int(answer.results[0].error_code)


async def _delete_offset(asked: Asked) -> int:
    gone = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topic = offset_delete.OffsetDeleteRequestTopic(name="orders", partitions=[gone])
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=[topic])
    answer = await asked.ask(ApiKey.OFFSET_DELETE, request, 0)
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("step", ["append", "build"])
@pytest.mark.parametrize("change", [_commit, _delete_group, _delete_offset])
async def test_a_change_that_fails_on_its_way_to_the_log_has_not_happened(
    faults: Faults, change: Callable[[Asked], Awaitable[int]], step: str
) -> None:
    computer = machine()
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        before = await fetch(asked)
        faults.step = step
        assert await change(asked) in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR)
        await active(asked)
        assert await fetch(asked) == before, "nobody was told, so nobody may see it"
        assert await change(asked) == 0, "and it can be tried again"
        after = await fetch(asked)
        assert after != before
    async with computer.broker() as asked:
        await active(asked)
        assert await fetch(asked) == after


async def test_a_rule_that_fails_takes_its_groups_offline_and_they_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        with monkeypatch.context() as planted:

            def broken(*arguments: object) -> None:
                raise PlantedError

            planted.setattr("penstock.services.coordinator.memberships.join", broken)
            assert await _join(asked) == ErrorCode.UNKNOWN_SERVER_ERROR
        await active(asked)
        assert await _join(asked) == 0
        assert (await fetch(asked))[0][1] == 5


async def test_a_member_that_names_a_protocol_twice_disturbs_no_other_group() -> None:
    async with machine({"offsets.topic.num.partitions": "1"}).broker() as asked:
        await prepared(asked)
        other = await join(asked, group_id="other")
        twice = 2 * [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joined = await join(asked, protocols=twice)
        assert (joined.error_code, joined.protocol_name) == (ErrorCode.NONE, "range")
        again = await join(asked, group_id="other", member_id=other.member_id)
        assert (again.error_code, again.generation_id) == (ErrorCode.NONE, other.generation_id)
