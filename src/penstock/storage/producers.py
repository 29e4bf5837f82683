"""What the log remembers of idempotent producers: enough to drop a repeat and to refuse a gap.

Per producer id: its epoch and the last five batches (sequences and offsets), since a client may have five requests
in flight. A repeat of one of them is answered with the offset it got the first time. The state is a function of the
log, rebuilt from batch headers; a snapshot (`storage.producer_snapshot`) spares reading the log from its start.

How many ids a log remembers is bounded: anybody can make them up. Past half of the bound those that were quiet for some
minutes, longer than a client tries a batch again, are forgotten early; past the bound new ones are refused.

Relays (`storage.relay_positions`) are producers of another kind, and only the broker itself writes as one.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import PRODUCER_QUIET_MS_MIN, PRODUCERS_MAX
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.relay import RELAY_IDS, RelaySource
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy
from penstock.storage.relay_positions import RelayPositions

BATCHES_KEPT = 5  # max.in.flight.requests.per.connection of idempotent clients
_KEPT_BEFORE = 1 - BATCHES_KEPT  # from there on, when one more comes
_new_tuple = tuple.__new__  # half as dear as calling a named tuple's class
NO_MORE = -1  # where a list of producers would go on
_SEQUENCE_MAX = 0x7FFFFFFF


class ProducerState:
    __slots__ = ("_entries", "_quiet", "refused", "relays")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerCopy] = {}
        # Since when nothing more has come, and what was known then; noticed by `expire`.
        self._quiet: dict[int, tuple[int, ProducerCopy]] = {}
        self.refused = 0  # new producers, since `expire` looked
        self.relays = RelayPositions()

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
            if len(self._entries) >= PRODUCERS_MAX:
                self.refused += 1
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the partition remembers {PRODUCERS_MAX} idempotent producers: no new one for some minutes",
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

    def check_relayed(self, header: BatchHeader, batch: Buffer) -> AppendedBatch | None:
        """The same for a batch that a relay moves: None, or the latest that it moved here, which includes this one."""
        return self.relays.check(header, batch)

    def record(self, header: BatchHeader, first_offset: int, batch: Buffer | None = None) -> None:
        """The batch was written at `first_offset`; `batch` is needed where it `names_source`."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            if producer_id >= RELAY_IDS:
                self.relays.record(header, first_offset, batch)
                return
            batches: tuple[AppendedBatch, ...] = ()
        else:
            batches = entry.batches if header.producer_epoch == entry.epoch else ()
        if (
            header.base_sequence >= 0
        ):  # else written for it by a coordinator: says nothing of what it sends next
            fields = (
                header.base_sequence,
                header.last_sequence,
                first_offset,
                first_offset + header.last_offset_delta,
                header.max_timestamp,
            )
            appended: AppendedBatch = _new_tuple(AppendedBatch, fields)
            batches = batches[_KEPT_BEFORE:] + (appended,)  # noqa: RUF005 - unpacking takes twice as long
        self._entries[producer_id] = _new_tuple(
            ProducerCopy, (producer_id, header.producer_epoch, header.max_timestamp, batches)
        )

    def expire(self, now_ms: int, quiet_ms_max: int, relays: Collection[RelaySource] = ()) -> None:
        """Forget producers that wrote nothing for so long; these `relays` are kept, others are over.

        By the clock of this broker, from the first look after their last batch. By the batches' own time, as in
        Kafka, one that writes records of last year would be forgotten at once, and its repeats stored twice.
        """
        before, self._quiet, self.refused = self._quiet, {}, 0
        for producer_id, entry in self._entries.items():
            known = before.get(producer_id)
            self._quiet[producer_id] = (now_ms, entry) if known is None or known[1] is not entry else known
        self._forget(
            [producer_id for producer_id, (since, _) in self._quiet.items() if now_ms - since >= quiet_ms_max]
        )
        if (crowd := len(self._entries) - PRODUCERS_MAX // 2) > 0:
            silent = ((since, producer_id) for producer_id, (since, _) in self._quiet.items())
            early = nsmallest(
                crowd, (quiet for quiet in silent if now_ms - quiet[0] >= PRODUCER_QUIET_MS_MIN)
            )
            self._forget([producer_id for _, producer_id in early])
        self.relays.expire(now_ms, quiet_ms_max, relays)

    def _forget(self, producer_ids: Iterable[int]) -> None:
        for producer_id in producer_ids:
            del self._entries[producer_id], self._quiet[producer_id]

    def forget_clients(self) -> None:
        """All but relays: whatever a producer says next is its beginning."""
        self._entries.clear()
        self._quiet.clear()

    def clear(self) -> None:
        self.forget_clients()
        self.relays.clear()

    def copy(self) -> list[ProducerCopy]:
        """For a snapshot that a thread writes, and for DescribeProducers."""
        return [*self._entries.values(), *self.relays.copies()]

    def copy_below(self, offset: int, first_id: int, count: int) -> tuple[list[ProducerCopy], int]:
        """Up to so many, from an id on, by what they wrote below `offset`: whoever reads on from there knows them all.

        With the id to go on from, -1 when there are no more. What is forgotten of that, because five batches came after
        it, would be forgotten there as well.
        """
        ids = nsmallest(count, (entry for entry in self._entries if entry >= first_id))
        found = [self._entries[producer_id] for producer_id in ids]
        if len(ids) == count:
            return list(_below(found, offset)), ids[-1] + 1
        found += sorted(copy_ for copy_ in self.relays.copies() if copy_.producer_id >= first_id)
        return list(_below(found, offset)), NO_MORE

    def below(self, offset: int) -> "ProducerState":
        """As it would be if nothing had been written from `offset` on."""
        return ProducerState.of(sorted(_below(self.copy(), offset)))

    def recall(self, known: Iterable[ProducerCopy], offset: int) -> None:
        """What clients are known to have done below `offset`, where the log does not tell any more."""
        for copy in _below(known, offset):
            entry = self._entries.get(copy.producer_id)
            if copy.producer_id >= RELAY_IDS or (entry is not None and not entry.lacks(copy)):
                continue
            self._entries[copy.producer_id] = copy

    def add(self, producers: Iterable[ProducerCopy]) -> None:
        """What `copy` made."""
        for producer in producers:
            if producer.producer_id >= RELAY_IDS:
                self.relays.add(producer)
            else:
                self._entries[producer.producer_id] = producer

    @classmethod
    def of(cls, producers: Iterable[ProducerCopy]) -> "ProducerState":
        state = cls()
        state.add(producers)
        return state


def _below(producers: Iterable[ProducerCopy], offset: int) -> Iterator[ProducerCopy]:
    """By what they wrote there; without those that wrote nothing."""
    for producer in producers:
        batches = tuple(batch for batch in producer.batches if batch.last_offset < offset)
        if batches:
            yield producer._replace(batches=batches, last_timestamp=batches[-1].timestamp)


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}: {why}",
    )
