"""Members of a group below every client library, for tests that misbehave on purpose."""

from typing import Any

from tests.integration.raw import RawClient, wait_until

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)


def find(client: RawClient, group: str = "any") -> None:
    """Asks until there is one and it is ready: Kafka makes its topic, and loads it, in its own time."""
    wanted = find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])

    def found() -> bool:
        return bool(client.call(ApiKey.FIND_COORDINATOR, 4, wanted).coordinators[0].error_code == 0)

    wait_until(found, "a coordinator is found")
    for number in range(300):  # enough names to meet every partition
        request = heartbeat.HeartbeatRequest(group_id=f"nobody-{number}", member_id="nobody")
        wait_until(
            lambda request=request: (
                client.call(ApiKey.HEARTBEAT, 4, request).error_code  # type: ignore[misc]
                == ErrorCode.UNKNOWN_MEMBER_ID
            ),
            "every partition is coordinated",
        )


def join_request(group: str, member_id: str = "", **fields: Any) -> join_group.JoinGroupRequest:
    wanted = {
        "group_id": group,
        "session_timeout_ms": 2000,
        "rebalance_timeout_ms": 2000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return join_group.JoinGroupRequest(**wanted | fields)


class RawMember:
    """Joined and synced once it is made: the only member, so also the leader."""

    def __init__(self, client: RawClient, group: str, **fields: Any) -> None:
        self.client = client
        self.group = group
        self.instance: str | None = fields.get("group_instance_id")
        joined = self.join("", **fields)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(joined.member_id, **fields)
        assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code)
        self.id: str = joined.member_id
        self.generation: int = joined.generation_id

    def join(self, member_id: str, **fields: Any) -> Any:
        return self.client.call(ApiKey.JOIN_GROUP, 9, join_request(self.group, member_id, **fields))

    def sync(self, generation: int | None = None, member_id: str | None = None) -> Any:
        mine = self.id if member_id is None else member_id
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=mine,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[sync_group.SyncGroupRequestAssignment(member_id=mine, assignment=b"all")],
        )
        return self.client.call(ApiKey.SYNC_GROUP, 5, request)

    def heartbeat(self, generation: int | None = None, member_id: str | None = None) -> ErrorCode:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance,
        )
        return ErrorCode(self.client.call(ApiKey.HEARTBEAT, 4, request).error_code)

    def leave(self) -> ErrorCode:
        members = [leave_group.MemberIdentity(member_id=self.id, group_instance_id=self.instance)]
        request = leave_group.LeaveGroupRequest(group_id=self.group, members=members)
        return ErrorCode(self.client.call(ApiKey.LEAVE_GROUP, 5, request).members[0].error_code)

    def commit(self, topic: str, offset: int, **fields: Any) -> ErrorCode:
        named = {
            "group": self.group,
            "member_id": self.id,
            "generation": self.generation,
            "instance": self.instance,
        }
        return commit(self.client, topic, offset, **named | fields)


def commit(
    client: RawClient,
    topic: str,
    offset: int,
    *,
    group: str,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str = "",
    partition: int = 0,
) -> ErrorCode:
    wanted = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
    )
    answer = client.call(ApiKey.OFFSET_COMMIT, 9, request)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(client: RawClient, group: str, topic: str, partition: int = 0) -> int:
    """Asks again while the groups are loaded."""
    topics = [offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics)]
    )
    while True:
        answer = client.call(ApiKey.OFFSET_FETCH, 9, request).groups[0]
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return int(answer.topics[0].partitions[0].committed_offset)
