"""How many idempotent producers all logs of a broker remember together: anybody can make them up, in every partition.

Each log counts in what it adds and what it forgets, from when the broker serves it until it is closed. Whatever a log
was given by its leader, or finds on its disk, is counted and never refused: it would not be the leader's log.

A share of it is each log's own, so that who fills the logs of one topic does not shut out the producers of another: a
log that remembers no more than its share forgets nobody early, and takes new ones when all together are too many.
"""

from penstock.core.limits import PRODUCERS_ALL_MAX, PRODUCERS_RESERVE


class ProducerBudget:
    __slots__ = ("_most", "_reserve", "known", "logs")

    def __init__(self, most: int = PRODUCERS_ALL_MAX, reserve: int = PRODUCERS_RESERVE) -> None:
        self._most = most
        self._reserve = reserve
        self.known = 0
        self.logs = 0

    @property
    def share(self) -> int:
        """Of each log: together they are no more than the reserve."""
        return self._reserve // max(self.logs, 1)

    def refuses(self, known: int) -> bool:
        """A new producer, to a log that remembers so many."""
        if self.known < self._most:
            return False
        # Shares shrink with every log that is made: those before may remember more than theirs.
        return known >= self.share or self.known >= self._most + self._reserve

    def excess(self, known: int) -> int:
        """How many a log that remembers so many is to forget early, if they were quiet; none if not positive."""
        return min(self.known - self._most // 2, known - self.share)
