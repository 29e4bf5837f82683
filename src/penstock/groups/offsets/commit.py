"""OffsetCommit and TxnOffsetCommit: who may commit for a group, and what is stored.

A member commits in its generation; a commit of a generation that has passed would set its successor back, so it is
refused. Whoever assigns partitions by hand names no generation, and may commit while the group has no members.
"""

from dataclasses import dataclass

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.rebalance import extend_session
from penstock.groups.classic.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from penstock.groups.decision import CoordinatorRecord, Now
from penstock.groups.records.keys import encode_offset_key
from penstock.groups.records.offset_value import NO_EXPIRY

NO_RETENTION = -1
# Versions that tell a client of an unknown group so, instead of naming its generation wrong.
_UNKNOWN_GROUP_SINCE = 9
_NONE = ErrorCode.NONE
_LATEST_MS = 2**63 - 1


@dataclass(slots=True)
class Committer:
    """In whose name offsets are committed."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    version: int


def check_committer(group: ClassicGroup | None, by: Committer) -> ErrorCode:
    """NONE with no group: a simple one is to be made."""
    generation = by.generation
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        known = by.version >= _UNKNOWN_GROUP_SINCE
        return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
    state = group.state
    if state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and state is EMPTY:
        return _NONE
    if generation >= 0 or by.member_id or by.instance_id is not None:
        error = group.check_member(by.member_id, by.instance_id)
        if error is not _NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif state is not EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    # It knows the generation, so it has joined, but has no part of the plan yet: let it sync first.
    return ErrorCode.REBALANCE_IN_PROGRESS if state is COMPLETING else _NONE


def check_transactional_committer(group: ClassicGroup | None, by: Committer) -> ErrorCode:
    """The same for TxnOffsetCommit. Until version 2 it cannot name a member, so whoever names none is believed.

    A plan that is being made is no hindrance: the transaction is of what was read before it.
    """
    if group is None:
        return ErrorCode.NONE if by.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if by.generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if by.generation >= 0 or by.member_id or by.instance_id is not None:
        error = group.check_member(by.member_id, by.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if by.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def keep_session(group: ClassicGroup, member_id: str, now: Now) -> None:
    """A commit is a sign of life."""
    member = group.members.get(member_id)
    if member is not None and group.state in (STABLE, PREPARING):
        extend_session(group, member, now)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(group_id, topic, partition), None)


def expiry(retention_ms: int, now_ms: int) -> int:
    """What a client's own wish for retention (until version 4) means for its offsets."""
    if retention_ms == NO_RETENTION:
        return NO_EXPIRY
    # Some ask for the longest there is, meaning "for ever"; a negative one means "not at all".
    return min(max(now_ms + retention_ms, 0), _LATEST_MS)
