"""A broker of `copies_model`, with what it has of the partition and what it has heard of it."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.controller.election import NOBODY, ReplicaEnd
from penstock.coordination.nodes import PartitionState
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.leading import UNKNOWN, Leading

if TYPE_CHECKING:
    from tests.property.copies_model import Model

LAG_MS = 2000


class Replica:
    def __init__(self, world: "Model", number: int) -> None:
        self.world, self.number = world, number
        self.records: list[tuple[int, int]] = []
        self.synced = 0
        self.up, self.crashed = True, False
        self.incomplete = False  # files of it went, and it is not copied anew yet
        self.left: int | None = None  # records that its disk kept, while its log is offline
        self.told = False  # whether it has said so
        config: Any = SimpleNamespace(now=SimpleNamespace(replica_lag_time_max_ms=LAG_MS))
        loop: Any = SimpleNamespace(time=lambda: world.now)
        nothing: Any = None
        self.keeper = IsrKeeper(loop, number, world.image, nothing, config, nothing, lambda: self.epoch)
        self.forget()

    def forget(self) -> None:
        """What only a process knows."""
        self.state: PartitionState | None = None
        self.leading: Leading | None = None
        self.leads = False
        self.leader_epoch = -1
        self.high_watermark = self.epoch_start = 0
        self.min_isr = self.world.min_isr

    # -- as `Partition` is to `IsrKeeper` --

    @property
    def epoch(self) -> int:
        found = self.world.image.brokers.get(self.number)
        return -1 if found is None else found.epoch

    @property
    def log(self) -> Any:
        return SimpleNamespace(start_offset=0, end_offset=len(self.records))

    @property
    def syncs(self) -> bool:
        return self.state is not None and self.state.assured == 1

    @property
    def own_end(self) -> int:
        return self.synced if self.syncs or self.failed else len(self.records)

    @property
    def failed(self) -> bool:
        return self.left is not None

    @property
    def vouches(self) -> bool:
        return not self.failed and self.own_end >= max(self.high_watermark, self.epoch_start)

    def advance(self) -> None:
        if not self.leads:
            return
        known = self.own_end if self.leading is None else self.leading.high_watermark(self.own_end)
        self.high_watermark = max(self.high_watermark, known)
        self.world.commit(self.records[: self.high_watermark], self.number)

    # -- what it does --

    def learn(self) -> None:
        """Hear of the partition's latest state, late."""
        state = self.world.state
        self.state = state
        if self.number not in state.replicas:
            self.records, self.synced, self.left, self.incomplete = [], 0, None, False
            self.leads, self.leading, self.high_watermark = False, None, 0
            return
        if state.leader != self.number or not self.world.image.lives[self.number].settled:
            self.leads, self.leading = False, None
        elif not self._leads_already(state):
            if self.failed and len(state.replicas) > 1:
                self.leads, self.leading = False, None
            else:
                self._lead(state)
        elif self.leading is not None:
            self.leading.committed(state)
        self.leader_epoch = state.leader_epoch
        self.advance()

    def _leads_already(self, state: PartitionState) -> bool:
        same = (self.leading is not None) == (len(state.replicas) > 1)
        return self.leads and same and self.leader_epoch == state.leader_epoch

    def _lead(self, state: PartitionState) -> None:
        self.world.check(self.records, self.number)
        self.incomplete = False  # nobody has more
        self.leads, self.leader_epoch, self.epoch_start = True, state.leader_epoch, len(self.records)
        alone = len(state.replicas) == 1
        self.leading = (
            None if alone else Leading(self.number, state, self.min_isr, self.epoch_start, self.world.now)
        )

    def hear_of_the_minimum(self) -> None:
        self.min_isr = self.world.min_isr
        if self.leading is not None:
            self.leading.min_isr = self.min_isr
        self.advance()

    def write(self, value: int) -> None:
        if self.leads and not self.failed:
            self.records.append((self.leader_epoch, value))
            self.advance()

    def sync(self) -> None:
        if not self.failed:
            self.synced = len(self.records)
            self.advance()

    def open_again(self) -> None:
        """With what its disk has kept."""
        if self.left is not None:
            self.records = self.records[: self.left]
            self.synced, self.left, self.told = min(self.synced, self.left), None, False

    def end(self) -> ReplicaEnd:
        """As the controller is told."""
        epoch = self.records[-1][0] if self.records else -1
        return ReplicaEnd(epoch, len(self.records), not self.incomplete)

    def _complete(self, state: PartitionState, leading: Leading, leader_end: int) -> None:
        """Begin anew, as `Follower` does; before that, as `Fetchers` asks."""
        leading.fetched(self.number, self.epoch, len(self.records), leader_end, self.world.now, UNKNOWN)
        if self.number not in (*state.isr, *state.eligible, *state.suspects):
            self.records, self.synced, self.high_watermark, self.incomplete = [], 0, 0, False

    def fetch(self, at_most: int) -> None:
        state = self.state
        if (
            state is None
            or self.leads
            or self.failed
            or self.number not in state.replicas
            or state.leader in (NOBODY, self.number)
        ):
            return
        leader = self.world.replicas[state.leader]
        leading = leader.leading
        if not leader.up or leading is None or leader.leader_epoch != self.leader_epoch or self.epoch < 0:
            return
        if self.number not in leading.progress:
            return
        if self.incomplete:
            self._complete(state, leading, len(leader.records))
            return
        common = 0
        for ours, theirs in zip(self.records, leader.records, strict=False):
            if ours != theirs:
                break
            common += 1
        if common < len(self.records):
            self.records = self.records[:common]
            self.synced, self.high_watermark = min(self.synced, common), min(self.high_watermark, common)
            return
        if self.syncs:
            self.synced = common
        leading.fetched(self.number, self.epoch, common, len(leader.records), self.world.now)
        leader.advance()
        self.records += leader.records[common : common + at_most]
        self.high_watermark = max(self.high_watermark, min(leader.high_watermark, len(self.records)))

    def ask(self) -> None:
        """For its in-sync replicas, as the keeper wants them."""
        if self.leading is None:
            return
        asker: Any = self
        proposal = self.keeper._proposal(asker, self.leading)
        if proposal is not None:
            proposal.unanswered += 1
            self.world.asked.append((self.number, self.epoch, self.leader_epoch, proposal))
