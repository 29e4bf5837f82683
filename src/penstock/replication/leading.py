"""What a leader knows of its followers, and what follows from it: the high watermark, and who is in sync.

A follower's fetch says how far its log reaches, since it asks for what comes next. The high watermark is the lowest
end among those that might be in sync by now: the in-sync replicas as they were last committed, and those of a change
that is under way. So a replica that joins is waited for before anybody can elect it, and one that leaves is waited for
until nobody can elect it any more. It stands still while fewer than `min.insync.replicas` are in sync, or anybody is
only eligible (see `controller.election`): those may lead one day, and must have everything that was committed.

Out of sync is who has not had everything for `replica.lag.time.max.ms`, or was further behind than
`replica.lag.max.messages` for half of that. So a burst, which everybody is behind for a moment, takes nobody out, and a
new leader gives its followers the time to show where they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf

from penstock.coordination.nodes import PartitionState

UNKNOWN = -1
NO_LIMIT = -1


class FetchVerdict(Enum):
    """What is left to a follower with the log it has."""

    GO_ON = auto()
    BEGIN_ANEW = auto()
    WAIT = auto()  # until it is known whether it may lead


@dataclass(slots=True)
class Progress:
    """One follower, as its fetches show it."""

    end: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_at: float = float("-inf")  # when it last had all that there was
    near_at: float = float("-inf")  # when it was last no further behind than its topic allows
    fetched_at: float = float("-inf")
    leader_end: int = 0  # ours, when it last fetched
    start: int = UNKNOWN  # where its log begins, durably
    copied_without: int = UNKNOWN  # below it tombstones were missing here when it began its log anew
    heard: bool = False  # whether it has fetched since we heard of the partition's latest state


@dataclass(slots=True)
class Proposal:
    """A change of the in-sync replicas that the controller was, or will be, asked for."""

    isr: tuple[tuple[int, int], ...]  # (broker, its epoch)
    partition_epoch: int  # which it builds on; a later one means that it is decided
    # Members of earlier proposals on the same state that may still be carried out.
    also: tuple[int, ...] = ()
    unanswered: int = 0  # requests that may still be on their way to the controller

    def members(self) -> tuple[int, ...]:
        return tuple(broker for broker, _ in self.isr)


class Leading:
    __slots__ = (
        "epoch_start",
        "lag_records_max",
        "min_isr",
        "node",
        "pending",
        "progress",
        "state",
        "tells_at_once",
    )

    def __init__(self, node: int, state: PartitionState, min_isr: int, epoch_start: int, now: float) -> None:
        """`epoch_start` is where the log ended when this epoch began."""
        self.node = node
        self.state = state
        self.min_isr = min_isr
        self.lag_records_max = NO_LIMIT  # how far behind a follower may be and count as in sync
        self.epoch_start = epoch_start
        self.pending: Proposal | None = None
        # Whether followers hear at once of a new high watermark: where consumers may read from them.
        self.tells_at_once = False
        self.progress = {
            replica: Progress(caught_up_at=now, near_at=now) if replica in state.isr else Progress()
            for replica in state.replicas
            if replica != node
        }

    # -- the high watermark ----------------------------------------------------------------------------------

    @property
    def least(self) -> int:
        return min(self.min_isr, self.state.assured)

    @property
    def is_short(self) -> bool:
        """Whether too few are in sync for anything to be committed."""
        return len(self.state.isr) < self.least

    def high_watermark(self, own_end: int) -> int:
        """As far as everything is committed by what is known now; it never counts below what it was before."""
        if self.is_short or self.state.eligible:
            return UNKNOWN
        ends = [own_end]
        for replica in self.waited_for():
            if replica != self.node:
                follower = self.progress.get(replica)
                ends.append(UNKNOWN if follower is None else follower.end)
        return min(ends)

    def waited_for(self) -> Iterable[int]:
        if self.pending is None:
            return self.state.isr
        return dict.fromkeys((*self.state.isr, *self.pending.members(), *self.pending.also))

    def lowest_start(self, own_start: int) -> int:
        """What lies below it is deleted wherever anybody may lead one day; UNKNOWN while that cannot be told."""
        if self.state.eligible or self.state.suspects:
            return UNKNOWN
        starts = [own_start]
        for replica in self.waited_for():
            if replica != self.node:
                follower = self.progress.get(replica)
                starts.append(UNKNOWN if follower is None else follower.start)
        return min(starts)

    def count_with(self, last_offset: int, own_end: int) -> int:
        """How many in-sync replicas, this one included, hold everything up to and with that offset.

        Copies out of sync do not count: who is in sync and lacks it would be elected before them.
        """
        others = sum(
            self.progress[replica].end > last_offset for replica in self.state.isr if replica in self.progress
        )
        return others + (own_end > last_offset)

    # -- followers -------------------------------------------------------------------------------------------

    def fetched(
        self, replica: int, broker_epoch: int, offset: int, leader_end: int, now: float, start: int = 0
    ) -> bool:
        """A follower asked for `offset`; False for one that is none, or a late request of an earlier process."""
        progress = self.progress.get(replica)
        if progress is None or broker_epoch < progress.broker_epoch:
            return False
        if offset >= leader_end:
            progress.caught_up_at = now
        elif offset >= progress.leader_end and progress.fetched_at > progress.caught_up_at:
            progress.caught_up_at = progress.fetched_at  # it has all there was when it asked the last time
        if self._is_near(offset, leader_end):
            progress.near_at = now
        progress.end, progress.broker_epoch, progress.start = offset, broker_epoch, start
        progress.fetched_at, progress.leader_end, progress.heard = now, leader_end, True
        return True

    def verdict(self, replica: int, offset: int, epoch: int, own: range, tombstones: int) -> FetchVerdict:
        """Whether a follower at `offset`, whose last batch is of `epoch`, may go on with the log it has; ours is `own`.

        Not one without a batch that does not begin where ours does: its beginning may be of a history that an unclean
        election ended. Nor one that may keep what tombstones below `tombstones`, gone by now, have deleted. One that
        begins where our log does has nothing of the kind, and copies nothing: values went before their tombstones.
        """
        progress = self.progress[replica]
        if offset <= own.start:
            progress.copied_without = tombstones
        astray = epoch < 0 and offset > own.start
        missed = offset < min(tombstones, own.stop) and progress.copied_without < tombstones
        # Who may lead has had everything committed, and must keep it: tombstones go only below the high watermark.
        if not (astray or missed) or replica in self.state.eligible or replica in self.waited_for():
            return FetchVerdict.GO_ON
        if replica in self.state.suspects:
            return FetchVerdict.WAIT
        return FetchVerdict.BEGIN_ANEW

    def lowest_end_since(self, when: float) -> float:
        """Of the followers that have fetched since then: they are on their way, and shall not have to begin anew."""
        return min(
            (progress.end for progress in self.progress.values() if progress.fetched_at >= when), default=inf
        )

    def may_join(self, replica: int, committed: int, own_start: int) -> bool:
        """Whether a follower outside has all that is committed, and all that was there when this epoch began.

        And nothing that was deleted, or that would be back when it leads. And whether it is near enough: it would be
        taken out again as soon as it was in. Nor one that goes, where all that stay are in sync.
        """
        if replica in self.state.isr or self.pending is not None:
            return False
        if replica in self.state.removing and self.has_moved:
            return False
        progress = self.progress[replica]
        has_all = progress.end >= max(committed, self.epoch_start) and progress.start >= own_start
        return has_all and self._is_near(progress.end, progress.leader_end)

    @property
    def has_moved(self) -> bool:
        """Whether all that stay after a move have everything, so that the others may go."""
        return all(replica in self.state.isr for replica in self.state.target)

    @property
    def may_end_move(self) -> bool:
        """Whether the replicas that go need nothing but a sign that all that stay live: `heard_all`."""
        return bool(self.state.removing) and self.node not in self.state.removing and self.has_moved

    @property
    def heard_all(self) -> bool:
        """Whether all that stay after a move have fetched since we know that they are in sync."""
        return all(self.progress[replica].heard for replica in self.state.target if replica != self.node)

    def _is_near(self, end: int, leader_end: int) -> bool:
        return self.lag_records_max == NO_LIMIT or leader_end - end <= self.lag_records_max

    def laggards(self, leader_end: int, now: float, lag_s_max: float) -> list[int]:
        """Members of the in-sync replicas that no longer keep up."""
        found = []
        for replica in self.state.isr:
            follower = self.progress.get(replica)
            if replica == self.node or follower is None or follower.end >= leader_end:
                continue
            is_far = not self._is_near(follower.end, leader_end) and now - follower.near_at > lag_s_max / 2
            if is_far or now - follower.caught_up_at > lag_s_max:
                found.append(replica)
        return found

    # -- changes of who is in sync ---------------------------------------------------------------------------

    def propose(self, members: Iterable[int], own_broker_epoch: int) -> Proposal:
        epochs = {self.node: own_broker_epoch}
        epochs |= {replica: progress.broker_epoch for replica, progress in self.progress.items()}
        isr = tuple((member, epochs.get(member, UNKNOWN)) for member in members)
        self.pending = Proposal(isr, self.state.partition_epoch)
        return self.pending

    def refused(self, own_broker_epoch: int) -> bool:
        """The controller will not do it; True when something has to be asked for in its place.

        A request that got no answer may still arrive and be carried out. Until that is impossible its members are
        waited for; asking for the replicas as they are moves the partition's epoch on, and makes it so.
        """
        pending = self.pending
        if pending is None:
            return False
        if not pending.unanswered:
            self.pending = None
            return False
        fence = self.propose(self.state.isr, own_broker_epoch)
        fence.also = (*pending.members(), *pending.also)
        fence.unanswered = pending.unanswered
        return True

    def committed(self, state: PartitionState) -> bool:
        """The controller wrote a state of this epoch; False when it is not newer than what is known."""
        if state.partition_epoch <= self.state.partition_epoch:
            return False
        self.state = state
        if self.pending is not None and self.pending.partition_epoch < state.partition_epoch:
            self.pending = None
        for replica in state.replicas:
            if replica != self.node:
                self.progress.setdefault(replica, Progress())
        for each in self.progress.values():
            each.heard = False
        for former in [replica for replica in self.progress if replica not in state.replicas]:
            del self.progress[former]  # its copy goes: what it had must not count when it is a replica again
        return True
