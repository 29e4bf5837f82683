"""Groups on both brokers, each in a state that requests shall find it in.

Members stay for the whole run: their sessions are as long as a broker allows, so nobody has to heartbeat. A member's
id is its side's own; it is kept under the group's name.
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

from penstock.wire.kafka.generated import (
    describe_groups,
    find_coordinator,
    join_group,
    leave_group,
    offset_commit,
    sync_group,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.oracle.sides import Side

LONG_MS = 1_800_000  # group.max.session.timeout.ms
NOT_READY = (14, 15, 16)  # loading, not available, not the coordinator
SETTLE_S = 30.0
POLL_S = 0.02
TRIES = 20
INSTANCE = "instance"
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
ASSIGNMENT = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"


def subscription(*topics: str) -> bytes:
    """What a consumer says it wants to read: version, topics, no data of its own."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def protocols(*names: str, topics: tuple[str, ...] = ("plain",)) -> list[Any]:
    return [join_group.JoinGroupRequestProtocol(name=name, metadata=subscription(*topics)) for name in names]


def join_request(group: str, **fields: Any) -> Any:
    wanted: dict[str, Any] = {
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "protocol_type": PROTOCOL_TYPE,
        "protocols": protocols(PROTOCOL),
    }
    return join_group.JoinGroupRequest(group_id=group, **wanted | fields)


def sync_request(side: Side, group: str, **fields: Any) -> Any:
    member = side.members.get(group, "")
    wanted: dict[str, Any] = {
        "generation_id": side.generations.get(group, -1),
        "member_id": member,
        "protocol_type": PROTOCOL_TYPE,
        "protocol_name": PROTOCOL,
        "assignments": [sync_group.SyncGroupRequestAssignment(member_id=member, assignment=ASSIGNMENT)],
    }
    return sync_group.SyncGroupRequest(group_id=group, **wanted | fields)


def commit_request(group: str, *places: tuple[str, int, int], **fields: Any) -> Any:
    topics: dict[str, list[Any]] = {}
    for name, number, offset in places:
        part = offset_commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
        topics.setdefault(name, []).append(part)
    listed = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()]
    return offset_commit.OffsetCommitRequest(group_id=group, topics=listed, **fields)


class SetUpError(Exception):
    """A group to compare on could not be made."""


@dataclass
class Groups:
    sides: tuple[Side, Side]
    fresh_name: Callable[[str], str]
    _ready: bool = False

    def ready(self) -> None:
        """Both coordinators serve; Kafka makes the topic of its groups when it is first asked."""
        if self._ready:
            return
        request = find_coordinator.FindCoordinatorRequest(key="any")
        for side in self.sides:
            self._until(lambda side=side: side.call(FIND_COORDINATOR, 1, request).error_code == 0)  # type: ignore[misc]
            for number in range(300):  # enough names to meet every partition
                asked = describe_groups.DescribeGroupsRequest(groups=[f"nobody-{number}"])
                self._until(
                    lambda side=side, asked=asked: (  # type: ignore[misc]
                        side.call(DESCRIBE_GROUPS, 5, asked).groups[0].error_code not in NOT_READY
                    )
                )
            side.look()
        self._ready = True

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not condition():
            if time.monotonic() > deadline:
                raise SetUpError(f"no coordinator after {SETTLE_S:.0f} s")
            time.sleep(POLL_S)

    # The states

    def unknown(self) -> str:
        return self.fresh_name("group")

    def completing(self, instance: str | None = None, **fields: Any) -> str:
        """One member, the leader, that has not yet brought its plan."""
        group = self.unknown()
        for side in self.sides:
            self._join(side, group, group_instance_id=instance, **fields)
        return group

    def stable(self, instance: str | None = None, **fields: Any) -> str:
        group = self.completing(instance, **fields)
        for side in self.sides:
            answer = side.call(SYNC_GROUP, 3, sync_request(side, group, group_instance_id=instance))
            self._good(side, answer.error_code)
        return group

    def impatient(self, rebalance_timeout_ms: int) -> str:
        """A member that is waited for so long when another joins; on a slow machine its plan can come too late."""
        for _ in range(TRIES):
            with suppress(SetUpError):
                return self.stable(rebalance_timeout_ms=rebalance_timeout_ms)
        raise SetUpError(f"no plan within {rebalance_timeout_ms} ms in {TRIES} tries")

    def completing_again(self) -> str:
        """Stable once, until its member joined again."""
        group = self.stable()
        for side in self.sides:
            self._join(side, group, member_id=side.members[group])
        return group

    def preparing(self) -> str:
        """One member of a generation that is over: another wants to join, and waits for it."""
        group = self.stable()
        for side in self.sides:
            side.leave_waiting(JOIN_GROUP, 3, join_request(group))
            asked = describe_groups.DescribeGroupsRequest(groups=[group])
            self._until(
                lambda side=side, asked=asked: (  # type: ignore[misc]
                    side.call(DESCRIBE_GROUPS, 5, asked).groups[0].group_state == "PreparingRebalance"
                )
            )
        return group

    def empty(self, *places: tuple[str, int, int]) -> str:
        """Its only member committed and left."""
        group = self.stable()
        for side in self.sides:
            member = side.members[group]
            if places:
                generation = side.generations[group]
                self._commit(
                    side,
                    commit_request(
                        group, *places, member_id=member, generation_id_or_member_epoch=generation
                    ),
                )
            request = leave_group.LeaveGroupRequest(group_id=group, member_id=member)
            self._good(side, side.call(LEAVE_GROUP, 1, request).error_code)
        return group

    def simple(self, *places: tuple[str, int, int]) -> str:
        """Offsets, and never a member."""
        group = self.unknown()
        for side in self.sides:
            self._commit(side, commit_request(group, *places))
        return group

    def _join(self, side: Side, group: str, **fields: Any) -> None:
        answer = side.call(JOIN_GROUP, 5, join_request(group, **fields))
        if answer.error_code == 79:  # MEMBER_ID_REQUIRED
            answer = side.call(JOIN_GROUP, 5, join_request(group, member_id=answer.member_id, **fields))
        self._good(side, answer.error_code)
        side.know_member(group, answer.member_id, answer.generation_id)

    def _commit(self, side: Side, request: Any) -> None:
        answer = side.call(OFFSET_COMMIT, 7, request)
        for topic in answer.topics:
            for partition in topic.partitions:
                self._good(side, partition.error_code)

    def _good(self, side: Side, code: int) -> None:
        if code:
            raise SetUpError(f"{side.name} could not make a group to compare on: error {code}")
