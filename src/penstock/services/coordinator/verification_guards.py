"""Guards against answers that are too late: between "the transaction is open" and the append, its marker may come.

Whoever asks the coordinator holds a guard meanwhile. A marker of the producer voids it, and so does whatever makes the
shard forget what it knew. What is appended under a void guard would be of no transaction, and hang in the log for ever.

In the second protocol the next transaction begins, with the epoch that the last one's marker carries, before that
marker is everywhere: such a marker voids nothing. One that aborts this transaction has a higher epoch.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Guard:
    __slots__ = ("_bumps", "_epoch", "is_valid")

    def __init__(self, epoch: int, *, bumps: bool) -> None:
        self._epoch = epoch
        self._bumps = bumps
        self.is_valid = True

    def marker_came(self, epoch: int) -> None:
        if not (self._bumps and epoch == self._epoch):
            self.is_valid = False


class VerificationGuards:
    """Those that are held, as many as there are requests on their way."""

    def __init__(self) -> None:
        self._by_producer: dict[int, list[Guard]] = {}

    @contextmanager
    def hold(self, producer_id: int, epoch: int, *, bumps: bool) -> Iterator[Guard]:
        """`bumps`: every transaction of the producer has an epoch of its own (the second protocol)."""
        guard = Guard(epoch, bumps=bumps)
        self._by_producer.setdefault(producer_id, []).append(guard)
        try:
            yield guard
        finally:
            held = self._by_producer[producer_id]
            held.remove(guard)
            if not held:
                del self._by_producer[producer_id]

    def marker_came(self, producer_id: int, epoch: int) -> None:
        for guard in self._by_producer.get(producer_id, ()):
            guard.marker_came(epoch)

    def void_all(self) -> None:
        for held in self._by_producer.values():
            for guard in held:
                guard.is_valid = False
