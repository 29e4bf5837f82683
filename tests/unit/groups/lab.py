"""A group with nothing around it: requests go in by hand, time passes when told, replies are found by ticket."""

from dataclasses import replace
from itertools import count
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup, Protocols
from penstock.groups.classic.join import join
from penstock.groups.classic.leave import leave
from penstock.groups.classic.requests import ClassicSettings, Join, JoinReply, Leaver, Sync, SyncReply
from penstock.groups.classic.sync import heartbeat, sync
from penstock.groups.classic.timeouts import expire
from penstock.groups.decision import CoordinatorRecord, Decision, Now

RANGE: Protocols = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t"),)
SETTINGS = ClassicSettings(
    initial_rebalance_delay_ms=3000,
    members_max=100,
    session_timeout_min_ms=6000,
    session_timeout_max_ms=1_800_000,
    record_bytes_max=1_000_000,
)
SESSION_S = 10.0
REBALANCE_S = 60.0


class Lab:
    def __init__(self, **settings: int) -> None:
        self.group = ClassicGroup("g")
        self.settings = replace(SETTINGS, **settings)
        self.seconds = 1000.0
        self.records: list[CoordinatorRecord] = []
        self.replies: dict[str, Any] = {}
        self._numbers = count(1)

    @property
    def now(self) -> Now:
        return Now(self.seconds, int(self.seconds * 1000))

    def _take(self, decision: Decision) -> None:
        self.records += decision.records
        for ticket, reply in decision.replies:
            assert ticket not in self.replies, f"{ticket} is answered twice"
            self.replies[ticket] = reply

    def ask(self, member_id: str = "", **fields: Any) -> str:
        """A JoinGroup; returns its ticket."""
        number = next(self._numbers)
        request = Join(
            group_id="g",
            member_id=member_id,
            instance_id=fields.pop("instance_id", None),
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", int(REBALANCE_S * 1000)),
            session_timeout_ms=int(SESSION_S * 1000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=fields.pop("protocols", RANGE),
            id_required=fields.pop("id_required", False),
            may_skip_assignment=fields.pop("may_skip_assignment", True),
            new_member_id=f"m{number}",
        )
        assert not fields
        ticket = f"join-{number}"
        self._take(join(self.group, request, ticket, self.settings, self.now))
        return ticket

    def joined(self, ticket: str) -> JoinReply:
        reply = self.replies[ticket]
        assert isinstance(reply, JoinReply)
        return reply

    def sync(self, member_id: str, plan: dict[str, bytes] | None = None, **fields: Any) -> str:
        number = next(self._numbers)
        ticket = f"sync-{number}"
        request = Sync(
            "g",
            fields.pop("generation", self.group.generation),
            member_id,
            fields.pop("instance_id", None),
            fields.pop("protocol_type", None),
            fields.pop("protocol", None),
            plan or {},
        )
        self._take(sync(self.group, request, ticket, self.settings, self.now))
        return ticket

    def synced(self, ticket: str) -> SyncReply:
        reply = self.replies[ticket]
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        return heartbeat(
            self.group,
            member_id,
            instance_id,
            self.group.generation if generation is None else generation,
            self.now,
        )

    def leave(self, *leavers: tuple[str, str | None]) -> list[ErrorCode]:
        ticket = f"leave-{next(self._numbers)}"
        self._take(
            leave(self.group, [Leaver(*leaver) for leaver in leavers], ticket, self.settings, self.now)
        )
        return [reply.error for reply in self.replies[ticket]]

    def pass_time(self, seconds: float, alive: tuple[str, ...] = ()) -> None:
        """Second by second, with heartbeats of those who are alive."""
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds = min(self.seconds + 1, end)
            for member_id in alive:
                self.heartbeat(member_id)
            if self.group.earliest <= self.seconds:
                self._take(expire(self.group, self.settings, self.now))

    # -- whole courses of events ---------------------------------------------------------------------------

    def stable(self, size: int = 2, *, static: bool = False) -> list[str]:
        """A stable group of `size` members; returns their ids, the leader's first."""
        tickets = [self.ask(instance_id=f"i{n}" if static else None) for n in range(size)]
        self.pass_time(self.settings.initial_rebalance_delay_ms / 1000 * 3)
        ids = [self.joined(ticket).member_id for ticket in tickets]
        leader = self.group.leader_id or ""
        ids.sort(key=lambda member_id: member_id != leader)
        for member_id in ids[1:]:
            self.sync(member_id)
        self.sync(leader, {member_id: member_id.encode() for member_id in ids})
        return ids
