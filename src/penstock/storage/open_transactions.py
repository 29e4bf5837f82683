"""Which transactions are open in a log, and from where on that leaves it unsettled what readers may see.

A producer's first transactional batch opens one, the marker that a coordinator sends ends it. It is unstable from its
first offset on while it is open, and also until its marker is committed: what a marker says may be lost with it, and
the next one may say the opposite. All of it follows from the log; snapshots have it (`storage.producer_snapshot`).

Of each producer it is known, too, in which epoch the coordinator was that last ended one: an older one is not obeyed.

Whether a batch may open a transaction, its coordinator is asked. Until that is answered the transaction may have ended,
so the question has a guard, in memory alone: the answer counts as long as the guard is there. Every marker of the
producer takes it away, and every batch that opens a transaction; a log that is opened anew has none.
"""

from collections.abc import Iterable

from penstock.records.batch import BatchHeader, Buffer
from penstock.records.control import read_marker
from penstock.storage.aborted_transactions import AbortedTransaction
from penstock.storage.segment import Segment

NONE = -1


class Guard:
    """Of one producer: it is asked for whether its transaction may be opened here. No two are the same."""

    __slots__ = ("asking", "epoch", "is_second", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, is_second: bool) -> None:
        self.asking = 0  # how many requests have it
        self.epoch = epoch
        self.lowest_sequence = sequence  # of all batches that wait for the answer
        self.is_second = is_second  # the client's kind of transactions: every end raises the epoch


# (producer id, epoch of its coordinator, first offset, offset of the marker); NONE where there is no such.
TransactionRow = tuple[int, int, int, int]


class OpenTransactions:
    __slots__ = ("_coordinators", "_ended", "_guards", "_open", "unstable")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer id -> first offset, in its order
        self._ended: dict[int, int] = {}  # marker, in its order -> first offset: not known to be committed
        self._coordinators: dict[int, int] = {}
        self._guards: dict[int, Guard] = {}
        self.unstable: dict[int, int] = {}  # first offset, in its order -> producer id: of both

    def __bool__(self) -> bool:
        return bool(self.unstable or self._coordinators)

    def first_offset(self, producer_id: int) -> int:
        """Of its open transaction, or NONE."""
        return self._open.get(producer_id, NONE)

    def coordinator_epoch(self, producer_id: int) -> int:
        return self._coordinators.get(producer_id, NONE)

    def record(self, header: BatchHeader, offset: int, batch: Buffer | None) -> AbortedTransaction | None:
        """A transactional batch was written; the transaction, if it was the marker that aborts it."""
        self._pass_guard(header)
        if not header.is_control:
            if header.producer_id not in self._open:
                self._open[header.producer_id] = offset
                self.unstable[offset] = header.producer_id
            return None
        assert batch is not None, "a marker is not told by its header"
        marker = read_marker(batch)
        if marker is not None:
            self._coordinators[header.producer_id] = marker.coordinator_epoch
        first = self._open.pop(header.producer_id, None)
        if first is None:
            return None  # nothing was written in it here, or the marker came once more
        self._ended[offset] = first
        if marker is None or marker.committed:
            return None
        stable = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(header.producer_id, first, offset, stable)

    def first_unstable(self, high_watermark: int) -> int | None:
        """From where on it is not settled, where all below the high watermark is committed; None: nothing is open."""
        ended = self._ended
        while ended and (marker := next(iter(ended))) < high_watermark:
            del self.unstable[ended.pop(marker)]
        return next(iter(self.unstable), None)

    # -- guards ----------------------------------------------------------------------------------------------

    def guard(self, producer_id: int, epoch: int, sequence: int, *, is_second: bool) -> Guard:
        """To be shown with the batch when the coordinator has answered, and given back with `withdraw`.

        Requests that ask at the same time share it.
        """
        guard = self._guards.get(producer_id)
        if guard is None or guard.epoch != epoch:
            guard = self._guards[producer_id] = Guard(epoch, sequence, is_second=is_second)
        guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        guard.asking += 1
        return guard

    def withdraw(self, producer_id: int, guard: Guard) -> None:
        """A request that asked is done, one way or another."""
        guard.asking -= 1
        if not guard.asking and self._guards.get(producer_id) is guard:
            del self._guards[producer_id]

    def is_asked_for(self, producer_id: int) -> bool:
        """Whether its coordinator is being asked."""
        return producer_id in self._guards

    def is_current(self, producer_id: int, guard: Guard | None) -> bool:
        return guard is not None and self._guards.get(producer_id) is guard

    def _pass_guard(self, header: BatchHeader) -> None:
        guard = self._guards.get(header.producer_id)
        if guard is None:
            return
        # In the second kind the marker has the epoch under which the next transaction goes on: that one may ask
        # already while the marker is on its way.
        is_of_the_one_before = header.is_control and guard.is_second and guard.epoch == header.producer_epoch
        if not is_of_the_one_before:
            del self._guards[header.producer_id]

    def forget(self, producer_id: int) -> None:
        """Nobody knows it any more."""
        self._coordinators.pop(producer_id, None)

    def forget_open(self) -> None:
        """What was open by then lies before the log, with its end or at least its beginning."""
        self._open.clear()
        self._ended.clear()
        self.unstable.clear()

    # -- all of them -----------------------------------------------------------------------------------------

    def rows(self) -> list[TransactionRow]:
        """For a snapshot that a thread writes."""
        markers = {first: marker for marker, first in self._ended.items()}
        coordinators = dict(self._coordinators)
        rows = []
        for first, producer_id in self.unstable.items():
            epoch = coordinators.pop(producer_id, NONE)
            rows.append((producer_id, epoch, first, markers.get(first, NONE)))
        rows += [(producer_id, epoch, NONE, NONE) for producer_id, epoch in coordinators.items()]
        return rows

    def add(self, rows: Iterable[TransactionRow]) -> None:
        """What `rows` told."""
        for producer_id, epoch, first, marker in sorted(rows, key=lambda row: row[2]):
            if epoch != NONE:
                self._coordinators[producer_id] = epoch
            if first == NONE:
                continue
            self.unstable[first] = producer_id
            if marker == NONE:
                self._open[producer_id] = first
            else:
                self._ended[marker] = first
        self._ended = dict(sorted(self._ended.items()))


def rebuilt_aborted(segments: Iterable[Segment], base: int) -> list[AbortedTransaction]:
    """Those whose markers are in the segment at `base`, from the log alone. Blocks."""
    known, found = OpenTransactions(), []
    for segment in segments:
        if segment.base_offset > base:
            break
        for at, header in segment.walk(0, segment.size, wait=True):
            if header.is_transactional and header.producer_id >= 0:
                batch = segment.file.pread(header.size_bytes, at) if header.is_control else None
                aborted = known.record(header, header.base_offset, batch)
                if aborted is not None and segment.base_offset == base:
                    found.append(aborted)
    return found
