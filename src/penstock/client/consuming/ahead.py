"""At-most-once: the commit comes before the body, and what was committed and not handed out is given back.

Messages are committed as they are taken; those that are gathered for a batch as the batch is handed out: a crash loses
one batch, not all that lay ready.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.client.consuming.commits import Commits, Plan
from penstock.client.consuming.unfinished import Unfinished, Where, first_offsets, next_offsets, where
from penstock.client.errors import kafka_errors

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Message as RawMessage

    from penstock.client.consuming.intake import Intake
    from penstock.client.consuming.paused import PausedPartitions

# A partition that is unknown, before it is read and committed again: the others are not kept waiting by it.
_UNKNOWN_SECONDS = 1.0


class Ahead:
    def __init__(self, plan: Plan, owned: set[Where], unfinished: Unfinished, commits: Commits) -> None:
        self._plan = plan
        self._owned = owned
        self._unfinished = unfinished
        self._commits = commits
        # The first offset that was, or may have been, committed and then not handed out.
        self.returned: dict[Where, int] = {}
        self.held = False  # the unfinished has messages that are not committed yet

    def not_handed_out(self, intake: "Intake") -> dict[Where, int]:
        """Where partitions stand of which more was committed than handed out."""
        pending = first_offsets(intake.waiting) | self._unfinished.pending()
        return pending | {
            place: min(offset, pending.get(place, offset)) for place, offset in self.returned.items()
        }

    def precommit(
        self, raw: "RawConsumer", fresh: "list[RawMessage]"
    ) -> tuple[Collection[Where], dict[Where, int]]:
        """The partitions that were committed, and what is still returned once their messages are in the unfinished."""
        if self._plan.group is None:
            return {where(message) for message in fresh}, {}
        starts, ends = first_offsets(fresh), next_offsets(fresh)
        # Until they are in the unfinished: a commit that raises may have been made.
        self.returned = starts | self.returned
        committed = self._commits.send(raw, ends)
        return committed, {place: offset for place, offset in self.returned.items() if place not in committed}

    def refused(self, fresh: "list[RawMessage]", committed: Collection[Where]) -> dict[Where, int]:
        """What could not be committed is not worked on but read again, from there."""
        starts = first_offsets(fresh)
        return {
            place: offset
            for place, offset in starts.items()
            if place in self._owned and place not in committed
        }

    def wait_for(self, refused: dict[Where, int], paused: "PausedPartitions") -> None:
        for place, offset in refused.items():
            if place in self._commits.missing:
                with kafka_errors(self._plan.bootstrap, "the assignment"):
                    paused.until(place, offset, _UNKNOWN_SECONDS)

    def promise(
        self, raw: "RawConsumer", intake: "Intake", paused: "PausedPartitions", count: int | None
    ) -> bool:
        """Commit the next messages of those that were only gathered, all without a `count`. False when some are not
        ours: they are not handed out."""
        unfinished = self._unfinished
        end = len(unfinished.raws) if count is None else min(unfinished.index + count, len(unfinished.raws))
        if self.held and unfinished.promised < end:
            wanted = unfinished.raws[unfinished.index : end]
            committed, returned = self.precommit(raw, wanted)
            gone = {where(message) for message in wanted} - set(committed)
            refused = self.refused(wanted, committed)
            back, raws = intake.back_to(refused), unfinished.without(gone) if gone else unfinished.raws
            end -= sum(where(message) in gone for message in wanted)
            # In one step, with no call: who is interrupted in between would be handed what is read again twice.
            self.returned, intake.back = returned, back
            unfinished.raws, unfinished.promised = raws, end
            if gone:
                self.wait_for(refused, paused)
                return False
        self.held = self.held and end < len(unfinished.raws)
        return True
