"""What the log remembers of idempotent producers: enough to drop a repeat and to refuse a gap.

Per producer id: its epoch and the last five batches (sequences and offsets), since a client may have five requests
in flight. A repeat of one of them is answered with the offset it got the first time. The state is a function of the
log, rebuilt from batch headers; a snapshot (`storage.producer_snapshot`) spares reading the log from its start.

Relays (`records.relay`) are producers of another kind: one place in the source's log says all, it is never forgotten
while the source is there, and only the broker itself writes as one.
"""

import sys
from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader
from penstock.records.relay import (
    RELAY_IDS,
    Relayed,
    RelayPlace,
    producer_fields,
    relay_place,
    relayed_by,
)

BATCHES_KEPT = 5  # max.in.flight.requests.per.connection of idempotent clients
EPOCHS_KEPT = 8  # of a relay's source: as many uncleanly elected leaders may have parted from each other
_SEQUENCE_MAX = 0x7FFFFFFF


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_NOWHERE = AppendedBatch(0, 0, -1, -1, -1)
_NOTHING_MOVED = RelayPlace(-1, -1)


class ProducerCopy(NamedTuple):
    producer_id: int
    epoch: int
    last_timestamp: int
    batches: tuple[AppendedBatch, ...]


class ProducerEntry:
    __slots__ = ("batches", "epoch", "last_timestamp", "quiet_since_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[AppendedBatch] = []
        self.last_timestamp = -1
        self.quiet_since_ms = -1  # when it was first noticed that nothing more had come

    def lacks(self, known: ProducerCopy) -> bool:
        """Whether that is more than it has; where only a coordinator wrote for it in its epoch, it has no batches."""
        if self.batches:
            return self.batches[-1].last_offset < known.batches[-1].last_offset
        return self.epoch <= known.epoch


class RelayWord:
    """The last word of a relay: how far it has moved the source's records, and which of ours say so."""

    __slots__ = ("batch", "committed_at", "earlier", "place", "quiet_since_ms")

    def __init__(
        self,
        place: RelayPlace,
        batch: AppendedBatch,
        committed_at: int | None = None,
        earlier: tuple[RelayPlace, ...] = (),
    ) -> None:
        self.place = place
        # How far the logs of earlier leader epochs were moved, and are part of the latest; the oldest first.
        self.earlier = earlier
        self.batch = batch
        # Where the latest of its words stands that is known to be committed: this one, or one before it.
        self.committed_at = committed_at
        self.quiet_since_ms = -1

    def places(self) -> tuple[RelayPlace, ...]:
        """The latest first."""
        return (self.place, *reversed(self.earlier))

    def before(self, moved: Relayed) -> tuple[RelayPlace, ...]:
        """What is earlier, once `moved` is the latest: it may go on from further back than this one came."""
        if moved.epoch <= self.place.epoch:
            return self.earlier
        places = [
            RelayPlace(one.epoch, min(one.distance, moved.first - 1)) for one in (*self.earlier, self.place)
        ]
        return tuple(one for one in places if one.distance >= 0)[-EPOCHS_KEPT:]

    def is_committed(self, high_watermark: int) -> bool:
        """Whether no fail-over takes it back any more: only then is what was moved the target's."""
        if self.batch.last_offset < high_watermark:
            self.committed_at = self.batch.first_offset
            return True
        return False


class ProducerState:
    __slots__ = ("_entries", "relays")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.relays: dict[int, RelayWord] = {}  # by the source's partition

    def __len__(self) -> int:
        return len(self._entries) + len(self.relays)

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """None: append it. A batch: it is here already, under these offsets. Otherwise ApiError."""
        entry = self._entries.get(header.producer_id)
        first, last, epoch = header.base_sequence, header.last_sequence, header.producer_epoch
        if entry is None:
            if header.producer_id >= RELAY_IDS:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"producer id {header.producer_id} is not for clients: ask for one with InitProducerId",
                )
            # A producer we never heard of, or forgot: whatever it says is its beginning, as in Kafka.
            return None
        if epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {header.producer_id} is older than {entry.epoch}",
            )
        if epoch > entry.epoch:
            if first != 0:
                raise _out_of_order(header, "a new epoch starts at sequence 0")
            return None
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        if entry.batches:
            expected = 0 if (previous := entry.batches[-1].last_sequence) == _SEQUENCE_MAX else previous + 1
            if first != expected:
                raise _out_of_order(header, f"expected sequence {expected}")
        return None

    def check_relayed(self, header: BatchHeader) -> AppendedBatch | None:
        """The same for a batch that a relay moves: None, or the latest that it moved here, which includes this one."""
        moved = relayed_by(header)
        word = self.relays.get(moved.source)
        known = _NOTHING_MOVED if word is None else word.place
        if word is not None and moved.place <= known:
            return word.batch
        if moved.skips:
            return None
        # In a later epoch the source may have lost what it moved before: then it goes on from further back.
        follows = moved.first == known.distance + 1
        if not follows and (moved.epoch == known.epoch or moved.first > known.distance):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{moved} of a relay does not follow {known}",
            )
        return None

    def record(self, header: BatchHeader, first_offset: int) -> None:
        """The batch was written at `first_offset`."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if header.producer_id >= RELAY_IDS:
                self._record_relayed(header, first_offset)
                return
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        entry.quiet_since_ms = -1
        if header.base_sequence < 0:
            return  # written for it by a coordinator: says nothing of what it sends next
        entry.batches.append(
            AppendedBatch(
                header.base_sequence,
                header.last_sequence,
                first_offset,
                first_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(entry.batches) > BATCHES_KEPT:
            del entry.batches[0]

    def _record_relayed(self, header: BatchHeader, first_offset: int) -> None:
        moved = relayed_by(header)
        batch = AppendedBatch(
            header.base_sequence,
            header.last_sequence,
            first_offset,
            first_offset + header.last_offset_delta,
            header.max_timestamp,
        )
        before = self.relays.get(moved.source)
        if before is None:
            self.relays[moved.source] = RelayWord(moved.place, batch)
        else:
            known = before.committed_at, before.before(moved)
            self.relays[moved.source] = RelayWord(moved.place, batch, *known)

    def expire(self, now_ms: int, quiet_ms_max: int, relays: Collection[int] = ()) -> None:
        """Forget producers that wrote nothing for so long; these `relays` are kept, others are over.

        By the clock of this broker, from the first look after their last batch. By the batches' own time, as in
        Kafka, one that writes records of last year would be forgotten at once, and its repeats stored twice.
        """
        for producer_id, entry in list(self._entries.items()):
            if entry.quiet_since_ms < 0:
                entry.quiet_since_ms = now_ms
            elif now_ms - entry.quiet_since_ms >= quiet_ms_max:
                del self._entries[producer_id]
        for source, word in list(self.relays.items()):
            if source in relays:
                word.quiet_since_ms = -1
            elif word.quiet_since_ms < 0:
                word.quiet_since_ms = now_ms
            elif now_ms - word.quiet_since_ms >= quiet_ms_max:
                del self.relays[source]

    def forget_clients(self) -> None:
        """All but relays: whatever a producer says next is its beginning."""
        self._entries.clear()

    def clear(self) -> None:
        self._entries.clear()
        self.relays.clear()

    def copy(self) -> list[ProducerCopy]:
        """For a snapshot that a thread writes, and for DescribeProducers.

        Relays look like producers of one batch, one for each of the source's leader epochs, the latest of them last.
        """
        copies = [
            ProducerCopy(producer_id, entry.epoch, entry.last_timestamp, tuple(entry.batches))
            for producer_id, entry in self._entries.items()
        ]
        for source, word in self.relays.items():
            for place in (*word.earlier, word.place):
                producer_id, epoch, last = producer_fields(source, *place)
                batch = word.batch if place is word.place else _NOWHERE
                batch = batch._replace(last_sequence=last)
                copies.append(ProducerCopy(producer_id, epoch, batch.timestamp, (batch,)))
        return copies

    def copy_below(self, offset: int, first_id: int, count: int) -> list[ProducerCopy]:
        """Up to so many, from an id on, by what they wrote below `offset`: whoever reads on from there knows them all.

        What is forgotten of that, because five batches came after it, would be forgotten there as well.
        """
        found = _below(self.copy(), offset)
        return nsmallest(count, (one for one in found if one.producer_id >= first_id))

    def below(self, offset: int) -> "ProducerState":
        """As it would be if nothing had been written from `offset` on."""
        return ProducerState.of(self.copy_below(offset, _FIRST_ID, sys.maxsize))

    def recall(self, known: Iterable[ProducerCopy], offset: int) -> None:
        """What clients are known to have done below `offset`, where the log does not tell any more."""
        for one in _below(known, offset):
            entry, batches = self._entries.get(one.producer_id), one.batches
            if one.producer_id >= RELAY_IDS or (entry is not None and not entry.lacks(one)):
                continue
            entry = self._entries[one.producer_id] = ProducerEntry(one.epoch)
            entry.batches, entry.last_timestamp = list(batches), one.last_timestamp

    def add(self, producers: Iterable[ProducerCopy]) -> None:
        """What `copy` made."""
        for producer_id, epoch, last_timestamp, batches in producers:
            if producer_id >= RELAY_IDS:
                source, place = relay_place(producer_id, epoch, batches[-1].last_sequence)
                before = self.relays.get(source)
                earlier = () if before is None else (*before.earlier, before.place)
                self.relays[source] = RelayWord(place, batches[-1], earlier=earlier)
                continue
            entry = self._entries[producer_id] = ProducerEntry(epoch)
            entry.batches, entry.last_timestamp = list(batches), last_timestamp

    @classmethod
    def of(cls, producers: Iterable[ProducerCopy]) -> "ProducerState":
        state = cls()
        state.add(producers)
        return state


_FIRST_ID = -(2**63)


def _below(producers: Iterable[ProducerCopy], offset: int) -> Iterator[ProducerCopy]:
    """By what they wrote there; without those that wrote nothing."""
    for one in producers:
        batches = tuple(batch for batch in one.batches if batch.last_offset < offset)
        if batches:
            yield one._replace(batches=batches, last_timestamp=batches[-1].timestamp)


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}: {why}",
    )
