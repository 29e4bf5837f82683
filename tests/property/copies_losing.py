"""`copies_model` with files that go: from brokers that are away, at the front, in the middle, at the end, or all.

What may be lost, and so is not done to them: the last copy of those that were in sync which is complete and has all.
Where none of them is complete: the last that has all, and ends no earlier than any other.
"""

from tests.property.copies_model import Model
from tests.property.copies_replica import Replica

from penstock.controller.election import NOBODY

HOLE = (-1, -1)  # in place of a record that is gone


class LosingModel(Model):
    def step(self) -> None:
        away = [replica for replica in self.replicas.values() if not replica.up and replica.records]
        if away and self.dice.random() < 0.2:
            replica = self.dice.choice(away)
            before = list(replica.records)
            replica.records = self._damaged(before)
            if not self._can_be_found(replica):
                replica.records = before
                return
            replica.synced = min(replica.synced, len(replica.records))
            replica.incomplete = replica.crashed = True  # its start finds that, and says so
            return
        super().step()

    def move(self) -> None:
        """Nobody takes replicas away while all that were in sync are incomplete: one of them may be the last copy."""
        if not all(self.replicas[broker].incomplete for broker in self._relied_on()):
            super().move()

    def _relied_on(self) -> set[int]:
        return {*self.state.isr, *self.state.eligible, *self.state.suspects}

    def _damaged(self, records: list[tuple[int, int]]) -> list[tuple[int, int]]:
        at = self.dice.randrange(len(records))
        match self.dice.choice(["hole", "hole", "end", "all", "point"]):
            case "hole":
                return [*records[:at], HOLE, *records[at + 1 :]]
            case "end":
                return records[:at]
            case "point":
                return records  # nothing vouches for it, and nothing is missing
        return []

    def _can_be_found(self, robbed: Replica) -> bool:
        """Whether the real decisions are to find all that is committed."""
        state, complete = (
            self.state,
            {broker: not self.replicas[broker].incomplete for broker in self.replicas},
        )
        complete[robbed.number] = False
        for _, _, _, proposal in self.asked:  # may still arrive, and give up all others
            if not any(
                complete[broker] and self._has_all(self.replicas[broker]) for broker in proposal.members()
            ):
                return False
        if any(complete[broker] and self._has_all(self.replicas[broker]) for broker in self._relied_on()):
            return True
        replicas = [self.replicas[broker] for broker in state.replicas]
        if any(complete[broker] for broker in self._relied_on()) or state.leader not in (
            NOBODY,
            robbed.number,
        ):
            return False
        ends = [replica.end()._replace(is_complete=complete[replica.number]) for replica in replicas]
        best = [replica for replica, end in zip(replicas, ends, strict=True) if end == max(ends)]
        return all(self._has_all(replica) and replica.synced == len(replica.records) for replica in best)

    def _has_all(self, replica: Replica) -> bool:
        durable = replica.records[: replica.synced]
        return not replica.failed and durable[: len(self.committed)] == self.committed
