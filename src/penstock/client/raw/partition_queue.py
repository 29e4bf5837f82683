"""One partition's batches in a producer: their order, whatever happens to them on the way.

Several may be under way at once. When one comes to nothing, those sent behind it come to nothing too (the broker sees
a gap in their sequences) or are unknown; the queue then holds until the fate of all that are under way is known, and
sends again what failed, in the old order and under the old sequences. So the broker stores each once, in order.
"""

from collections import deque
from typing import TYPE_CHECKING

from penstock.client.raw.stamping import Batch
from penstock.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    import uuid

    from penstock.client.raw.link import Link


class PartitionQueue:
    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.sequence = 0  # of the next batch
        self.topic_id: uuid.UUID | None = None  # as it was when the first batch was sent
        self.waiting: deque[Batch] = deque()
        self.not_before = 0.0  # do not try again before this moment
        self.pauses = 0  # in a row
        self.link: Link | None = None  # where the last batch was sent to
        self._flying: list[Batch] = []
        self._unanswered = 0
        self._holds = False

    @property
    def ready(self) -> bool:
        return bool(self.waiting) and not self._holds

    def may_go(self, link: "Link") -> bool:
        """A new leader gets the next batch when it is known what became of those at the old one.

        It would take it for the first one of this producer, and those come after it, or never.
        """
        return self.link is link or not self._unanswered

    @property
    def holds(self) -> bool:
        """Something failed, and the fate of what was sent behind it is not known yet."""
        return self._holds

    def take(self) -> Batch:
        """The next batch to send."""
        batch = self.waiting.popleft()
        batch.failed = False
        batch.tries += 1
        self._flying.append(batch)
        self._unanswered += 1
        return batch

    def delivered(self, batch: Batch) -> None:
        self._flying.remove(batch)
        self._unanswered -= 1
        self.pauses = 0
        self._regroup()

    def failed(self, batch: Batch) -> None:
        """It is to be sent again, with those behind it that fail too."""
        batch.failed = True
        self._unanswered -= 1
        self._holds = True
        self._regroup()

    def behind_a_failure(self, batch: Batch) -> bool:
        return any(earlier.failed for earlier in self._flying[: self._flying.index(batch)])

    def _regroup(self) -> None:
        if self._holds and not self._unanswered:
            self.waiting.extendleft(reversed(self._flying))
            self._flying.clear()
            self._holds = False
