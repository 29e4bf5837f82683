"""What members ask and are told, in words of this package; the front end translates."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_MEMBERS_RECORDS_MAX
from penstock.groups.classic.group import Protocols, told_bytes

UNKNOWN_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    initial_rebalance_delay_ms: int
    members_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    # A group's record must fit into a batch of its topic.
    record_bytes_max: int

    @property
    def members_bytes_max(self) -> int:
        return GROUP_MEMBERS_RECORDS_MAX * self.record_bytes_max


@dataclass(slots=True)
class Join:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    # Whether a new member must first be told its id, and come back with it.
    id_required: bool
    # Whether the client understands that a leader need not make a plan.
    may_skip_assignment: bool
    # The id a new member would get.
    new_member_id: str

    def size_bytes(self) -> int:
        return told_bytes(
            self.member_id or self.new_member_id, self.client_id, self.instance_id, self.protocols
        )


class JoinedMember(NamedTuple):
    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinReply:
    error: ErrorCode
    member_id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: list[JoinedMember] | None = None  # for the leader alone


@dataclass(slots=True)
class Sync:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


@dataclass(slots=True)
class SyncReply:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None


class LeaveReply(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode
