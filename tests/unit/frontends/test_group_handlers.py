"""The group APIs at every version Kafka 4.3 serves, asked through the codecs."""

import pytest
from tests.unit.frontends.group_requests import (
    SUBSCRIPTION,
    commit,
    fetch,
    join,
    machine,
    prepared,
    stable,
    sync,
)

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.apis import load_handlers
from penstock.frontends.kafka.registry import REGISTRY
from penstock.groups.offsets.commit import Committer
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.shard import Status
from penstock.services.topics.deletions import TopicReference
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    delete_groups,
    describe_groups,
    heartbeat,
    leave_group,
    list_groups,
    offset_delete,
    offset_fetch,
)


def test_all_versions_of_kafka_4_3_are_served() -> None:
    load_handlers()
    served = {key: (REGISTRY[key].min_version, REGISTRY[key].max_version) for key in REGISTRY}
    assert {
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.OFFSET_DELETE: (0, 0),
    }.items() <= served.items()


@pytest.mark.parametrize("version", range(10))
async def test_join_and_sync(version: int) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        joined = await join(asked, version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id == joined.members[0].member_id
        assert joined.member_id.startswith("tester-")
        assert joined.members[0].metadata == SUBSCRIPTION
        synced = await sync(asked, joined.member_id, version=min(version, 5))
        assert (synced.error_code, synced.assignment) == (0, b"mine")


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(version: int) -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        for generation, who, expected in (
            (1, member_id, ErrorCode.NONE),
            (0, member_id, ErrorCode.ILLEGAL_GENERATION),
            (1, "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            request = heartbeat.HeartbeatRequest(group_id="g", generation_id=generation, member_id=who)
            assert (await asked.ask(ApiKey.HEARTBEAT, request, version)).error_code == expected


@pytest.mark.parametrize("version", range(6))
async def test_leave(version: int) -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        for who, expected in ((member_id, ErrorCode.NONE), (member_id, ErrorCode.UNKNOWN_MEMBER_ID)):
            if version < 3:
                request = leave_group.LeaveGroupRequest(group_id="g", member_id=who)
                assert (await asked.ask(ApiKey.LEAVE_GROUP, request, version)).error_code == expected
            else:
                request = leave_group.LeaveGroupRequest(
                    group_id="g", members=[leave_group.MemberIdentity(member_id=who)]
                )
                answer = await asked.ask(ApiKey.LEAVE_GROUP, request, version)
                assert (answer.error_code, answer.members[0].error_code) == (0, expected)


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit(version: int) -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        mine = {"member_id": member_id, "generation_id_or_member_epoch": 1}
        assert await commit(asked, version, **mine) == ErrorCode.NONE
        assert await fetch(asked) == [(0, 7, "note", 0), (1, -1, "", 0)]
        assert await commit(asked, version, partition=2, **mine) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        mine["generation_id_or_member_epoch"] = 0
        assert await commit(asked, version, offset=1, **mine) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(asked, version, offset=1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await fetch(asked) == [(0, 7, "note", 0), (1, -1, "", 0)]


@pytest.mark.parametrize("version", range(1, 11))
async def test_fetch(version: int) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=7) == ErrorCode.NONE
        assert await fetch(asked, version) == [(0, 7, "note", 0), (1, -1, "", 0)]
        if version >= 2:
            assert await fetch(asked, version, everything=True) == [(0, 7, "note", 0)]
            assert await fetch(asked, version, "nobody", everything=True) == []


async def test_many_groups_are_fetched_at_once() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await commit(asked, group_id="a", offset=1)
        await commit(asked, group_id="b", offset=2)
        groups = [
            offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            for group_id in ("b", "c", "a")
        ]
        answer = await asked.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=groups), 9)
        found = {
            g.group_id: [p.committed_offset for t in g.topics for p in t.partitions] for g in answer.groups
        }
        assert found == {"b": [2], "c": [], "a": [1]}
        assert [group.group_id for group in answer.groups] == ["b", "c", "a"]


async def test_topics_and_groups_that_do_not_exist() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(asked, 10, topic_id=bytes(15) + b"x") == ErrorCode.UNKNOWN_TOPIC_ID
        stale = {"member_id": "m", "generation_id_or_member_epoch": 4}
        assert await commit(asked, 8, **stale) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(asked, 9, **stale) == ErrorCode.GROUP_ID_NOT_FOUND
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id="g",
            topics=[offset_fetch.OffsetFetchRequestTopics(topic_id=bytes(15) + b"x", partition_indexes=[0])],
        )
        answer = await asked.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=[group]), 10)
        assert answer.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_metadata_beside_an_offset_has_a_limit() -> None:
    async with machine({"offset.metadata.max.bytes": "5"}).broker() as asked:
        await prepared(asked)
        assert await commit(asked, metadata="12345") == ErrorCode.NONE
        assert await commit(asked, offset=9, metadata="123456") == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert (await fetch(asked))[0] == (0, 7, "12345", 0)


@pytest.mark.parametrize("version", range(6))
async def test_list(version: int) -> None:
    async with machine().broker() as asked:
        await stable(asked)
        await commit(asked, group_id="simple")
        request = list_groups.ListGroupsRequest()
        found = await asked.ask(ApiKey.LIST_GROUPS, request, version)
        assert {(group.group_id, group.protocol_type) for group in found.groups} == {
            ("g", "consumer"),
            ("simple", ""),
        }
        if version >= 4:
            assert {group.group_id: group.group_state for group in found.groups} == {
                "g": "Stable",
                "simple": "Empty",
            }
            chosen = await asked.ask(
                ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(states_filter=["stable"]), version
            )
            assert [group.group_id for group in chosen.groups] == ["g"]
        if version >= 5:
            assert {group.group_type for group in found.groups} == {"classic"}
            for types, count in ((["Classic"], 2), (["consumer", "share"], 0)):
                chosen = await asked.ask(
                    ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(types_filter=types), version
                )
                assert len(chosen.groups) == count


@pytest.mark.parametrize("version", range(7))
async def test_describe(version: int) -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        request = describe_groups.DescribeGroupsRequest(
            groups=["g", "nobody"], include_authorized_operations=version >= 3
        )
        found, missing = (await asked.ask(ApiKey.DESCRIBE_GROUPS, request, version)).groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = found.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "tester", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert (missing.group_state, missing.error_code) == ("Dead", expected)
        if version >= 3:
            assert found.authorized_operations == 0b110101001000
            told = -(2**31) if version >= 6 else found.authorized_operations
            assert missing.authorized_operations == told


async def test_describe_answers_once_of_each_and_shows_what_members_had() -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        await join(asked, member_id=member_id)
        request = describe_groups.DescribeGroupsRequest(groups=["g", "g"])
        found = (await asked.ask(ApiKey.DESCRIBE_GROUPS, request, 5)).groups
        assert [group.group_state for group in found] == ["CompletingRebalance"]
        (member,) = found[0].members
        assert (member.member_metadata, member.member_assignment) == (b"", b"mine")


@pytest.mark.parametrize("version", range(3))
async def test_delete(version: int) -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        await commit(asked, group_id="simple")
        request = delete_groups.DeleteGroupsRequest(groups_names=["g", "simple", "nobody"])
        answer = await asked.ask(ApiKey.DELETE_GROUPS, request, version)
        assert [(result.group_id, result.error_code) for result in answer.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("simple", ErrorCode.NONE),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert await fetch(asked, group_id="simple", everything=True) == []
        members = [leave_group.MemberIdentity(member_id=member_id)]
        await asked.ask(ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest(group_id="g", members=members), 5)
        answer = await asked.ask(ApiKey.DELETE_GROUPS, request, version)
        assert answer.results[0].error_code == ErrorCode.NONE


async def test_offset_delete() -> None:
    async with machine().broker() as asked:
        await stable(asked)
        await asked.create("unread")
        await commit(asked, group_id="simple")

        async def delete(group_id: str, topic: str, partition: int = 0) -> tuple[int, list[int]]:
            wanted = offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
            topics = [offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[wanted])]
            request = offset_delete.OffsetDeleteRequest(group_id=group_id, topics=topics)
            answer = await asked.ask(ApiKey.OFFSET_DELETE, request, 0)
            return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]

        assert await delete("g", "orders") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert await delete("g", "unread") == (0, [ErrorCode.NONE])
        assert await delete("g", "unread", 9) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert await delete("nobody", "orders") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert await delete("nobody", "orders", 9) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert await delete("", "orders") == (ErrorCode.INVALID_GROUP_ID, [])
        assert await delete("simple", "orders") == (0, [ErrorCode.NONE])
        assert await fetch(asked, group_id="simple", everything=True) == []


async def test_everything_is_there_after_a_restart() -> None:
    place = machine()
    async with place.broker() as asked:
        member_id = await stable(asked)
        mine = {"member_id": member_id, "generation_id_or_member_epoch": 1}
        assert await commit(asked, **mine) == 0
        await commit(asked, group_id="gone")
        await asked.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(groups_names=["gone"]), 2)
    async with place.broker() as asked:
        while any(shard.status is not Status.ACTIVE for shard in asked.services.coordinator.shards()):
            await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
            await asked.services.producer_ids.next()  # a turn of the loop
        found = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
        assert [(group.group_id, group.group_state) for group in found.groups] == [("g", "Stable")]
        assert (await fetch(asked))[0] == (0, 7, "note", 0)
        assert (await sync(asked, member_id)).assignment == b"mine"
        assert await commit(asked, offset=8, **mine) == 0


async def test_a_group_whose_log_cannot_be_opened_is_not_looked_for_elsewhere() -> None:
    place = machine({"offsets.topic.num.partitions": "2"})
    async with place.broker() as asked:
        await prepared(asked)
        groups = ["a", "b"]  # one in each partition
        for group in groups:
            assert await commit(asked, group_id=group) == 0
        shards = [asked.services.coordinator.shard_of(group) for group in groups]
        assert len({shard.partition.index for shard in shards}) == 2
        broken = shards[0].partition.log.directory
    place.files.fail_next("open", f"{broken}/*", count=1000)
    async with place.broker() as asked:
        assert await commit(asked, group_id="a", offset=1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await commit(asked, group_id="b", offset=9) in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        await commit(asked)
        await asked.services.topics.delete([TopicReference("orders")], timeout_ms=10_000)
        await asked.create("orders", partitions=2)
        assert await fetch(asked) == [(0, -1, "", 0), (1, -1, "", 0)]


async def test_a_group_without_a_name_cannot_be_joined() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert (await join(asked, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await join(asked, session_timeout_ms=1)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert (await join(asked, group_id="\0" * 32767)).error_code == 0, "any other name will do"


async def test_names_and_notes_that_cannot_be_stored_are_refused() -> None:
    """Longer in bytes than a string may be: as when bytes that are no UTF-8 were read as replacement characters."""
    async with machine({"offset.metadata.max.bytes": "100000"}).broker() as asked:
        await prepared(asked)
        long = "\N{REPLACEMENT CHARACTER}" * 20_000
        services, later = asked.services, PendingReply(lambda code: code, lambda reply: reply)
        entry = ("orders", bytes(16), 0, 5, -1, long)
        services.group_offsets.commit(Committer("g", "", None, -1, 9), [entry], -1, later)
        assert later.rendered() == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        later = PendingReply(lambda code: code, lambda reply: reply)
        services.group_offsets.commit(Committer(long, "", None, -1, 9), [entry], -1, later)
        assert later.rendered() is ErrorCode.INVALID_GROUP_ID


async def test_without_the_topic_nobody_is_served() -> None:
    async with machine().broker() as asked:
        assert (await join(asked)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_sync_must_say_for_which_protocol() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        member_id = (await join(asked)).member_id
        answer = await sync(asked, member_id, protocol_name=None)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_while_groups_are_loaded_clients_wait_and_heartbeats_are_good() -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        for shard in asked.services.coordinator.shards():
            shard.status = Status.LOADING
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await join(asked)).error_code == loading
        assert (await sync(asked, member_id)).error_code == loading
        assert await commit(asked) == loading
        listed = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
        assert listed.error_code == loading
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = await asked.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=[group]), 9)
        assert fetched.groups[0].error_code == loading
        request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        assert (await asked.ask(ApiKey.HEARTBEAT, request, 4)).error_code == ErrorCode.NONE


async def test_a_shard_that_cannot_write_turns_everyone_away() -> None:
    async with machine().broker() as asked:
        member_id = await stable(asked)
        for shard in asked.services.coordinator.shards():
            shard.partition.log.sync_failed()
        mine = {"member_id": member_id, "generation_id_or_member_epoch": 1}
        assert await commit(asked, **mine) == ErrorCode.NOT_COORDINATOR
        assert await commit(asked, **mine) == ErrorCode.NOT_COORDINATOR


async def test_offsets_expire_and_with_the_last_one_the_group() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, 4, retention_time_ms=0) == 0
        assert await commit(asked, group_id="kept") == 0
        await asked.services.group_offsets.expire()
        listed = await asked.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(), 5)
        assert [group.group_id for group in listed.groups] == ["kept"]
        assert await fetch(asked, everything=True) == []
