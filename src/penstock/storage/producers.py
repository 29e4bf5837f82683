"""What the log remembers of idempotent producers: enough to drop a repeat and to refuse a gap.

Per producer id: its epoch and the last five batches (sequences and offsets), since a client may have five requests
in flight. A repeat of one of them is answered with the offset it got the first time. The state is a function of the
log, rebuilt from batch headers; a snapshot (`storage.producer_snapshot`) spares reading the log from its start.

How many ids a log remembers is bounded, and how many all logs of a broker do (`storage.producer_budget`): anybody can
make them up. Past half of either bound those that were quiet for some minutes, longer than a client tries a batch
again, are forgotten early, on each replica by its own clock; past the bound new ones are refused, by the leader alone.

Relays (`storage.relay_positions`) are producers of another kind, and only the broker itself writes as one. What is
known of transactions is in `storage.open_transactions`.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Self

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import PRODUCER_QUIET_MS_MIN, PRODUCERS_AT_ONCE, PRODUCERS_MAX
from penstock.records.batch import TRANSACTIONAL_MASK, BatchHeader, Buffer
from penstock.records.relay import RELAY_IDS, RelaySource
from penstock.storage.aborted_transactions import AbortedTransaction
from penstock.storage.open_transactions import NONE, OpenTransactions
from penstock.storage.producer_budget import ProducerBudget
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy, ProducerRow
from penstock.storage.relay_positions import RelayPositions

BATCHES_KEPT = 5  # max.in.flight.requests.per.connection of idempotent clients
_KEPT_BEFORE = 1 - BATCHES_KEPT  # from there on, when one more comes
NO_MORE = -1  # where a list of producers would go on
_SEQUENCE_MAX = 0x7FFFFFFF


class ProducerState:
    __slots__ = ("_budget", "_entries", "_quiet", "refused", "relays", "transactions", "unstable")

    def __init__(self) -> None:
        # Replaced, never changed: so a copy of all of them is a list, made at once.
        self._entries: dict[int, ProducerRow] = {}
        # Since when nothing more has come, and what was known then; noticed by `expire`. Quiet for longest come first.
        self._quiet: dict[int, tuple[int, ProducerRow]] = {}
        self.refused = 0  # new producers, since `expire` looked
        self.relays = RelayPositions()
        self.transactions = OpenTransactions()
        self.unstable = self.transactions.unstable  # at hand for the hot path
        self._budget: ProducerBudget | None = None  # of the broker that serves the log

    def __len__(self) -> int:
        return len(self._entries) + len(self.relays)

    def epoch_of(self, producer_id: int) -> int:
        """-1: nothing is known of it."""
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry[1]

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
            self._admit()
            # A producer we never heard of, or forgot: whatever it says is its beginning, as in Kafka.
            return None
        _, known_epoch, _, batches = entry
        if self.unstable and not header.attributes & TRANSACTIONAL_MASK:
            self._check_outside(header)
        if epoch < known_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {header.producer_id} is older than {known_epoch}",
            )
        if epoch > known_epoch:
            if first != 0:
                raise _out_of_order(header, "a new epoch starts at sequence 0")
            return None
        for batch in batches:
            if batch[0] == first and batch[1] == last:
                return AppendedBatch._make(batch)
        if batches:
            expected = 0 if (previous := batches[-1][1]) == _SEQUENCE_MAX else previous + 1
            if first != expected:
                raise _out_of_order(header, f"expected sequence {expected}")
        return None

    def _check_outside(self, header: BatchHeader) -> None:
        if self.transactions.first_offset(header.producer_id) != NONE:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open: its batches are part of it",
            )

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether one of it is open, under that epoch."""
        return self.transactions.first_offset(producer_id) != NONE and self.epoch_of(producer_id) == epoch

    def last_written(self, producer_id: int) -> ProducerRow | None:
        """What is known of it: the very same object, until something of it is written."""
        return self._entries.get(producer_id)

    def has_batches(self, producer_id: int, epoch: int) -> bool:
        """Whether it is known which sequence comes next."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry[1] == epoch and bool(entry[3])

    def _admit(self) -> None:
        """One more; ApiError if they are too many."""
        if who := self._too_many():
            self.refused += 1
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"{who} idempotent producers: no new one for some minutes"
            )

    def takes(self, producer_id: int) -> bool:
        """Whether there is room for what it does: it is known, or they are not too many."""
        return producer_id in self._entries or not self._too_many()

    def _too_many(self) -> str:
        """Who remembers how many; nothing where there is room for one more."""
        known, budget = len(self._entries), self._budget
        if known >= PRODUCERS_MAX:
            return f"the partition remembers {known}"
        if budget is not None and budget.refuses(known):
            return f"all partitions here remember {budget.known}"
        return ""

    def check_relayed(self, header: BatchHeader, batch: Buffer) -> AppendedBatch | None:
        """The same for a batch that a relay moves: None, or the latest that it moved here, which includes this one."""
        return self.relays.check(header, batch)

    def record(
        self, header: BatchHeader, first_offset: int, batch: Buffer | None = None
    ) -> AbortedTransaction | None:
        """The batch was written at `first_offset`; `batch` is needed where it is a control batch.

        The transaction that it aborts, if it does.
        """
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            if producer_id >= RELAY_IDS:
                self.relays.record(header, first_offset, batch)
                return None
            batches: tuple[tuple[int, int, int, int, int], ...] = ()
            self._count(1)
        else:
            batches = entry[3] if header.producer_epoch == entry[1] else ()
        if (
            header.base_sequence >= 0
        ):  # else written for it by a coordinator: says nothing of what it sends next
            appended = (
                header.base_sequence,
                header.last_sequence,
                first_offset,
                first_offset + header.last_offset_delta,
                header.max_timestamp,
            )
            batches = batches[_KEPT_BEFORE:] + (appended,)  # noqa: RUF005 - unpacking takes twice as long
        self._entries[producer_id] = (producer_id, header.producer_epoch, header.max_timestamp, batches)
        if header.attributes & TRANSACTIONAL_MASK:
            return self.transactions.record(header, first_offset, batch)
        return None

    def expire(self, now_ms: int, quiet_ms_max: int, relays: Collection[RelaySource] = ()) -> None:
        """The whole of `expiring` at once."""
        for _ in self.expiring(now_ms, quiet_ms_max, relays):
            pass

    def expiring(
        self, now_ms: int, quiet_ms_max: int, relays: Collection[RelaySource] = ()
    ) -> Iterator[None]:
        """Forget producers that wrote nothing for so long; these `relays` are kept, others are over.

        By the clock of this broker, from the first look after their last batch. By the batches' own time, as in
        Kafka, one that writes records of last year would be forgotten at once, and its repeats stored twice.

        A portion at a time: producers may write in between.
        """
        self.refused = 0
        self.relays.expire(now_ms, quiet_ms_max, relays)
        for number, producer_id in enumerate(list(self._entries), 1):
            self._notice(producer_id, now_ms)
            if number % PRODUCERS_AT_ONCE == 0:
                yield
        for number, producer_id in enumerate(list(self._quiet), 1):
            if not self._forget_quiet(producer_id, now_ms, quiet_ms_max):
                break  # and all that follow were quiet for less long
            if number % PRODUCERS_AT_ONCE == 0:
                yield

    def _notice(self, producer_id: int, now_ms: int) -> None:
        """Whether it has written since the last look: then it is quiet from now on, and goes to the end of the row."""
        entry, known = self._entries.get(producer_id), self._quiet.get(producer_id)
        if known is not None and known[1] is entry and known[0] <= now_ms:  # else the clock was ahead
            return
        self._quiet.pop(producer_id, None)
        if entry is not None:
            self._quiet[producer_id] = (now_ms, entry)

    def _forget_quiet(self, producer_id: int, now_ms: int, quiet_ms_max: int) -> bool:
        """False: it was not quiet for long enough."""
        if producer_id not in self._quiet:
            return True  # they were all forgotten meanwhile
        since, entry = self._quiet[producer_id]
        is_crowded = self._excess() > 0
        if now_ms - since < (min(PRODUCER_QUIET_MS_MIN, quiet_ms_max) if is_crowded else quiet_ms_max):
            return False
        if self.transactions.first_offset(producer_id) != NONE:
            # Not before its transaction has ended: it is quiet from the next look on.
            self._quiet.pop(producer_id)
        elif self._entries.get(producer_id) is entry:  # else it has just written; the next look notices
            del self._entries[producer_id], self._quiet[producer_id]
            self.transactions.forget(producer_id)
            self._count(-1)
        return True

    def _excess(self) -> int:
        """How many there are too many, here or of all logs together."""
        known, budget = len(self._entries), self._budget
        here = known - PRODUCERS_MAX // 2
        return here if budget is None else max(here, budget.excess(known))

    # -- in the broker's budget ------------------------------------------------------------------------------

    def join(self, budget: ProducerBudget) -> None:
        """The broker serves the log from now on. For its loop: nothing that a thread works on is counted."""
        self.leave()
        self._budget = budget
        budget.logs += 1
        self._count(len(self._entries))

    def leave(self) -> ProducerBudget | None:
        """The one that it counted in, and does not any more."""
        budget = self._budget
        if budget is not None:
            self._count(-len(self._entries))
            budget.logs -= 1
            self._budget = None
        return budget

    def in_place_of(self, other: "ProducerState") -> Self:
        """The log was cut or opened again, and this is what it remembers now."""
        if (budget := other.leave()) is not None:
            self.join(budget)
        return self

    def _count(self, more: int) -> None:
        if self._budget is not None:
            self._budget.known += more

    # -- all of them -----------------------------------------------------------------------------------------

    def forget_clients(self) -> None:
        """All but relays: whatever a producer says next is its beginning. Transactions that are open stay so."""
        open_: dict[int, ProducerRow] = {
            producer_id: (*row[:3], ())
            for producer_id, row in self._entries.items()
            if self.transactions.first_offset(producer_id) != NONE
        }
        self._count(len(open_) - len(self._entries))
        self._entries = open_
        self._quiet.clear()

    def clear(self) -> None:
        self.transactions = OpenTransactions()
        self.unstable = self.transactions.unstable
        self.forget_clients()
        self.relays.clear()

    def rows(self) -> list[ProducerRow]:
        """All of them, made at once: for a snapshot that a thread writes, and for DescribeProducers."""
        return [*self._entries.values(), *self.relays.copies()]

    def copy(self) -> list[ProducerCopy]:
        """The same, some 50 ms for as many as a log remembers."""
        return list(map(ProducerCopy.of, self.rows()))

    def copy_below(self, offset: int, first_id: int, count: int) -> tuple[list[ProducerCopy], int]:
        """Up to so many, from an id on, by what they wrote below `offset`: whoever reads on from there knows them all.

        With the id to go on from, -1 when there are no more. What is forgotten of that, because five batches came after
        it, would be forgotten there as well.
        """
        ids = nsmallest(count, (entry for entry in self._entries if entry >= first_id))
        found = [ProducerCopy.of(self._entries[producer_id]) for producer_id in ids]
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
            if copy.producer_id >= RELAY_IDS or (
                entry is not None and not ProducerCopy.of(entry).lacks(copy)
            ):
                continue
            self._count(entry is None)
            self._entries[copy.producer_id] = copy.row()

    def add(self, producers: Iterable[ProducerCopy]) -> None:
        """What `copy` made."""
        for producer in producers:
            if producer.producer_id >= RELAY_IDS:
                self.relays.add(producer)
            else:
                self._count(producer.producer_id not in self._entries)
                self._entries[producer.producer_id] = producer.row()

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
