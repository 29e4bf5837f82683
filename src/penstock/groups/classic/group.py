"""A classic group and its members: the state, and what can be read off it. The rules are in the files beside it."""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_MEMBER_BYTES, GROUP_PROTOCOL_BYTES
from penstock.groups.classic.states import EMPTY, GroupState, check_transition
from penstock.groups.classic.subscription import subscribed_topics
from penstock.groups.decision import NEVER, Now, Ticket
from penstock.groups.records.group_value import NO_TIMESTAMP, StoredGroup, StoredMember

CONSUMER_PROTOCOL = "consumer"

Protocols = tuple[tuple[str, bytes], ...]  # names, in the member's order of preference, with their metadata


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # Before its first generation. A new member has no id yet, so it cannot send heartbeats.
    is_new: bool = False
    awaiting_join: Ticket | None = None
    awaiting_sync: Ticket | None = None

    def size_bytes(self) -> int:
        """About what it takes in memory: everything that its client chose."""
        return told_bytes(self.id, self.client_id, self.instance_id, self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


def told_bytes(member_id: str, client_id: str, instance_id: str | None, protocols: Protocols) -> int:
    names = len(member_id) + len(client_id) + len(instance_id or "")
    return names + sum(GROUP_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True)
class ClassicGroup:
    id: str
    state: GroupState = EMPTY
    previous_state: GroupState = EMPTY
    state_since_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None  # None: used for its offsets only
    protocol: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    # Given an id, not yet come back with it. Rebalances wait for them, as for members.
    pending: dict[str, None] = field(default_factory=dict)
    pending_sync: dict[str, None] = field(default_factory=dict)
    awaiting_join: int = 0  # how many members wait in JoinGroup
    told_bytes: int = 0  # what all members told of themselves
    subscribed: frozenset[str] | None = None  # None: not known
    _supporters: Counter[str] = field(default_factory=Counter)  # of each protocol
    # The initial delay: what is left of it, and whether anybody came since it was last looked at.
    new_member_added: bool = False
    delay_ms: int = 0
    delay_left_ms: int = 0
    # Deadlines, in seconds of the loop. `earliest` is a lower bound of them all: moving one back costs nothing.
    session_deadlines: dict[str, float] = field(default_factory=dict)  # of members and pending ones
    join_deadline: float = NEVER
    sync_deadline: float = NEVER
    sync_generation: int = -1
    earliest: float = NEVER
    armed_at: float = NEVER  # the runtime's: when it will look here next

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def is_simple(self) -> bool:
        """Used for its offsets only."""
        return self.protocol_type is None

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def size_bytes(self) -> int:
        """About what its members take in memory, and those that are to become some."""
        return self.told_bytes + (len(self.members) + len(self.pending)) * GROUP_MEMBER_BYTES

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The one most members like best, of those that all of them support."""
        count = len(self.members)
        # A set: members choose how many names there are, and each looks for the first of its own.
        candidates = {name for name, supporters in self._supporters.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    # -- members -------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.id
        self.members[member.id] = member
        self.told_bytes += member.size_bytes()
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        self._supporters.update(name for name, _ in member.protocols)
        if member.awaiting_join is not None:
            self.awaiting_join += 1
        self.pending.pop(member.id, None)

    def remove(self, member_id: str) -> Member | None:
        """Out of everything, its deadline included; the leader's place goes to whoever is left."""
        self.session_deadlines.pop(member_id, None)
        self.pending.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.told_bytes -= member.size_bytes()
        self._forget_supporter(member)
        if member.awaiting_join is not None:
            self.awaiting_join -= 1
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def _forget_supporter(self, member: Member) -> None:
        """Its own names alone are looked at: thousands may leave in one turn, and the others name any number."""
        supporters = self._supporters
        for name, _ in member.protocols:
            supporters[name] -= 1
            if not supporters[name]:
                del supporters[name]

    def replace_protocols(self, member: Member, protocols: Protocols) -> None:
        # As nearly always: counting anew would be most of what a rejoin costs.
        if protocols == member.protocols:
            return
        self._forget_supporter(member)
        self._supporters.update(name for name, _ in protocols)
        self.told_bytes -= member.size_bytes()
        member.protocols = protocols
        self.told_bytes += member.size_bytes()

    def await_join(self, member: Member, ticket: Ticket) -> None:
        if member.awaiting_join is None:
            self.awaiting_join += 1
        member.awaiting_join = ticket

    def take_join_ticket(self, member: Member) -> Ticket | None:
        ticket, member.awaiting_join = member.awaiting_join, None
        if ticket is not None:
            self.awaiting_join -= 1
        return ticket

    # -- moving --------------------------------------------------------------------------------------------

    def move_to(self, state: GroupState, now: Now) -> None:
        check_transition(self.id, self.state, state)
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now.wall_ms

    def learn_subscriptions(self) -> None:
        self.subscribed = None
        if self.uses_consumer_protocol and (self.protocol is not None or not self.members):
            self.subscribed = subscribed_topics(m.metadata(self.protocol) for m in self.members.values())

    def set_session(self, member_id: str, at: float) -> None:
        self.session_deadlines[member_id] = at
        if at < self.earliest:
            self.earliest = at

    def set_join_deadline(self, at: float) -> None:
        self.join_deadline = at
        self.earliest = min(self.earliest, at)

    def set_sync_deadline(self, at: float) -> None:
        self.sync_deadline = at
        self.sync_generation = self.generation
        self.earliest = min(self.earliest, at)

    # -- stored form ---------------------------------------------------------------------------------------

    def stored(self) -> StoredGroup:
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            state_since_ms=self.state_since_ms,
            members=[
                StoredMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    member.assignment,
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def restored(cls, group_id: str, stored: StoredGroup) -> "ClassicGroup":
        """As it was when it was written. Its sessions begin once it is in service: see `timeouts.begin_sessions`."""
        group = cls(
            group_id,
            state_since_ms=stored.state_since_ms,
            generation=stored.generation,
            protocol=stored.protocol,
        )
        for stored_member in stored.members:
            protocols = ((stored.protocol or "", stored_member.subscription),)
            member = Member(
                stored_member.member_id,
                stored_member.instance_id,
                stored_member.client_id,
                stored_member.client_host,
                stored_member.rebalance_timeout_ms,
                stored_member.session_timeout_ms,
                protocols,
                stored_member.assignment,
            )
            group.add(member, stored.protocol_type)
        group.protocol_type = stored.protocol_type or None
        group.leader_id = stored.leader if stored.leader in group.members else next(iter(group.members), None)
        group.state = group.previous_state = GroupState.STABLE if group.members else EMPTY
        group.learn_subscriptions()
        return group
