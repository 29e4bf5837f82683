"""A group, looked at several times: what moved in between."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.admin.group_info import GroupInfo, GroupOffset, MemberInfo

REBALANCING = ("preparing_rebalancing", "completing_rebalancing")


@dataclass(frozen=True, slots=True)
class Flow:
    """What happened in one partition."""

    topic: str
    partition: int
    member: str | None
    lag: int
    lag_before: int
    written: int  # offsets that were added
    read: int  # offsets that the group committed
    never_read: bool  # nothing was ever committed for it

    @property
    def name(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True)
class Watch:
    looks: "tuple[GroupInfo, ...]"
    seconds: float

    @property
    def first(self) -> "GroupInfo":
        return self.looks[0]

    @property
    def last(self) -> "GroupInfo":
        return self.looks[-1]

    @cached_property
    def flows(self) -> list[Flow]:
        """Without retry topics: what waits there moves when it is due."""
        before = {(offset.topic, offset.partition): offset for offset in self.first.offsets}
        return [
            _flow(before.get((offset.topic, offset.partition), offset), offset) for offset in self.last.own
        ]

    @property
    def rebalancing(self) -> int:
        """In how many looks the group was rebalancing."""
        return sum(1 for look in self.looks if look.state in REBALANCING)

    @cached_property
    def came(self) -> "list[MemberInfo]":
        """Members that were not there at every look before."""
        return self._changed(self.looks)

    @cached_property
    def went(self) -> "list[MemberInfo]":
        return self._changed(tuple(reversed(self.looks)))

    @staticmethod
    def _changed(looks: "tuple[GroupInfo, ...]") -> "list[MemberInfo]":
        found = {}
        for earlier, later in pairwise(looks):
            known = {member.id for member in earlier.members}
            found.update({member.id: member for member in later.members if member.id not in known})
        return list(found.values())

    def client_of(self, member: str | None) -> str | None:
        found = next((member_info for member_info in self.last.members if member_info.id == member), None)
        return None if found is None else f"{found.client_id} {found.host}"


def _flow(before: "GroupOffset", after: "GroupOffset") -> Flow:
    read = 0 if after.never_read else after.position - before.position
    return Flow(
        after.topic,
        after.partition,
        after.member,
        after.lag,
        before.lag,
        max(0, after.latest - before.latest),
        max(0, read),
        after.never_read,
    )
