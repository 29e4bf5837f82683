"""A transaction coordinator in a world that is told what to do: producers of both kinds, a log whose appends fail.

It does what `services.coordinator.shard` does: what is decided is in memory at once, its records are committed later,
and replies leave in order, each behind everything that was decided before it. When an append fails some of what was
under way may be in the log nonetheless, nobody is told, and everything is read again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import CoordinatorRecord, Decision, Now
from penstock.groups.transactions.add_partitions import add_partitions, verify_partitions
from penstock.groups.transactions.end import end
from penstock.groups.transactions.ending import marked
from penstock.groups.transactions.layouts import (
    NO_EPOCH,
    NO_ID,
    StoredTransaction,
    TopicPartition,
    decode_key,
    decode_value,
)
from penstock.groups.transactions.machine import TransactionMachine
from penstock.groups.transactions.requests import (
    AddPartitions,
    End,
    InitProducerId,
    MarkersDue,
    SpareIds,
    TransactionSettings,
)
from penstock.groups.transactions.states import EMPTY, TransactionState
from penstock.groups.transactions.subject import TransactionalId, record_of

NONE = ErrorCode.NONE
TIMEOUT_MS = 60_000
IDLE_MS = 3_600_000
# Kafka's, from where each state may be reached; "first" and "any" say under which versions of transactions.
_QUIET = {"Empty", "CompleteCommit", "CompleteAbort"}
LEGAL: dict[str, dict[str, set[str]]] = {
    "Empty": {"any": _QUIET},
    "Ongoing": {"any": _QUIET | {"Ongoing"}},
    "PrepareCommit": {"any": {"Ongoing"}},
    "PrepareAbort": {"any": {"Ongoing"}, "second": _QUIET},
    "CompleteCommit": {"any": {"PrepareCommit"}},
    "CompleteAbort": {"any": {"PrepareAbort"}},
    "Dead": {"any": _QUIET},
}


@dataclass(eq=False)
class Producer:
    transactional_id: str
    version: int
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    added: set[TopicPartition] = field(default_factory=set)  # as it was told, since the last end
    known: list[tuple[int, int]] = field(default_factory=list)  # what it ever had


@dataclass
class History:
    """What the committed records say of one transactional id."""

    stored: StoredTransaction | None = None
    last_end: StoredTransaction | None = None  # the last Prepare record
    handed: MarkersDue | None = None  # the last that was to be written
    marked: set[TopicPartition] = field(default_factory=set)  # of these
    ids: set[int] = field(default_factory=set)  # all it ever had


class World:
    def __init__(self, level: int) -> None:
        self.machine = TransactionMachine()
        self.settings = TransactionSettings(level, 900_000, IDLE_MS, 100_000, SpareIds(), self)
        self._next_id = 1000
        self.refill(5)
        self.wall_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []  # committed
        # What was decided and is not committed: the records of each decision, and who is told behind them.
        self.under_way: list[tuple[list[CoordinatorRecord], list[Callable[[], None]]]] = []
        self.due: list[MarkersDue] = []
        self.histories: dict[str, History] = {}
        self.owners: dict[str, Producer] = {}  # whose InitProducerId was last answered

    @property
    def now(self) -> Now:
        return Now(self.wall_ms / 1000, self.wall_ms)

    def refill(self, count: int) -> None:
        for _ in range(count):
            self.settings.ids.add(self._next_id)
            self._next_id += 1

    def set_level(self, level: int) -> None:
        self.settings = replace(self.settings, level=level)

    # -- the shard -----------------------------------------------------------------------------------------

    def decide(
        self, subject: TransactionalId | None, rule: Callable[[], Decision], told: Callable[[Any], None]
    ) -> None:
        before = subject.size_bytes if subject is not None else 0
        decision = rule()
        if subject is not None:
            self.machine.subjects_bytes += subject.size_bytes - before
        if decision.records:
            self.under_way.append((decision.records, []))
        for ticket, reply in decision.replies:
            tell = self.due.append if ticket is self else told
            if self.under_way:
                self.under_way[-1][1].append(partial(self._tell, tell, reply))
            else:
                self._tell(tell, reply)

    def _tell(self, tell: Callable[[Any], None], reply: Any) -> None:
        if isinstance(reply, MarkersDue):
            self._check_markers(reply)
        tell(reply)

    def commit(self, batches: int) -> None:
        for _ in range(min(batches, len(self.under_way))):
            records, tellings = self.under_way.pop(0)
            for record in records:
                self._store(record)
            for telling in tellings:
                telling()
        if not self.under_way:
            self.check_read_back()

    def fail(self, surviving: int) -> None:
        """An append fails, or another broker takes over: so many decisions are in the log, and nobody was told."""
        for records, _ in self.under_way[:surviving]:
            for record in records:
                self._store(record)
        self.under_way.clear()
        self.due.clear()
        self.machine = self._read_back()

    def begin(self) -> None:
        for subject in list(self.machine.subjects()):
            self.decide(subject, partial(self.machine.begin, subject, self.settings, self.now), _nobody)

    def _read_back(self) -> TransactionMachine:
        machine = TransactionMachine()
        for key, value in self.log:
            assert machine.apply(key, value)
        return machine

    # -- what is asked -------------------------------------------------------------------------------------

    def init(self, producer: Producer, *, named: tuple[int, int] = (NO_ID, NO_EPOCH)) -> None:
        request = InitProducerId(producer.transactional_id, TIMEOUT_MS, *named)
        subject = self.machine.find_or_unborn(producer.transactional_id)
        unborn = subject.is_unborn
        self.decide(
            subject,
            lambda: self.machine.init_producer_id(subject, request, "asked", self.settings, self.now),
            lambda reply: self._begun(producer, request, reply, unborn=unborn),
        )

    def _begun(self, producer: Producer, request: InitProducerId, reply: Any, *, unborn: bool) -> None:
        if reply.error is not NONE:
            return
        if request.names_producer and not unborn:
            self._check_owner(producer)
        self.owners[producer.transactional_id] = producer
        producer.producer_id, producer.epoch = reply.producer_id, reply.epoch
        producer.added.clear()
        self._check_current(producer.transactional_id, reply.producer_id, reply.epoch)

    def add(self, producer: Producer, partitions: frozenset[TopicPartition], named: tuple[int, int]) -> None:
        request = AddPartitions(*named, partitions, producer.version)
        subject = self.machine.find(producer.transactional_id)

        def told(reply: ErrorCode) -> None:
            if reply is NONE:
                self._check_owner(producer)
                self._check_current(producer.transactional_id, *named)
                producer.added |= partitions

        self.decide(
            subject, partial(add_partitions, subject, request, "asked", self.settings, self.now), told
        )

    def verify(
        self, producer: Producer, partitions: frozenset[TopicPartition], named: tuple[int, int]
    ) -> None:
        request = AddPartitions(*named, partitions)
        subject = self.machine.find(producer.transactional_id)

        def told(reply: dict[TopicPartition, ErrorCode]) -> None:
            found = {partition for partition, code in reply.items() if code is NONE}
            if found:
                self._check_owner(producer)
                stored = self.histories[producer.transactional_id].stored
                assert stored is not None
                assert found <= stored.partitions

        self.decide(subject, lambda: verify_partitions(subject, request, "asked"), told)

    def end(self, producer: Producer, *, committed: bool, named: tuple[int, int], fresh: bool) -> None:
        request = End(*named, committed, producer.version)
        subject = self.machine.find(producer.transactional_id)

        def told(reply: Any) -> None:
            if reply.error is not NONE:
                return
            self._check_owner(producer)
            last_end = self.histories[producer.transactional_id].last_end
            assert last_end is not None
            assert (last_end.state is TransactionState.PREPARE_COMMIT) is committed, (
                "another end than was told"
            )
            if fresh:
                assert producer.added <= last_end.partitions, "a part of it was left out"
            if producer.version >= 2:
                producer.producer_id, producer.epoch = reply.producer_id, reply.epoch
            producer.added.clear()

        self.decide(subject, partial(end, subject, request, "asked", self.settings, self.now), told)

    # -- what else happens ---------------------------------------------------------------------------------

    def mark(self, number: int, partitions: frozenset[TopicPartition]) -> None:
        due = self.due[number % len(self.due)]
        subject = self.machine.find(due.transactional_id)
        history = self.histories[due.transactional_id]
        if due is history.handed:
            history.marked |= partitions
        if subject is None:
            return  # late news, of an id that was forgotten since
        self.decide(subject, lambda: marked(subject, due, partitions, self.settings, self.now), _nobody)

    def pass_ms(self, milliseconds: int) -> None:
        """A timer that was set earlier may go off although nothing is due: so all are looked at."""
        self.wall_ms += milliseconds
        for subject in list(self.machine.subjects()):
            rule = partial(self.machine.expire, subject, self.settings, self.now)
            self.decide(subject, rule, _nobody)
            assert subject.earliest > self.now.seconds, "it would be looked at for ever"

    def found(self, transactional_id: str, epoch: int) -> Producer:
        """A producer that was there before the story begins."""
        stored = StoredTransaction(7, epoch, TIMEOUT_MS, EMPTY, updated_ms=self.wall_ms)
        self._store(record_of(transactional_id, stored, self.settings.level))
        self.machine = self._read_back()
        self.begin()
        self.owners[transactional_id] = Producer(transactional_id, 2, 7, epoch)
        return self.owners[transactional_id]

    # -- what must hold ------------------------------------------------------------------------------------

    def _store(self, record: CoordinatorRecord) -> None:
        """A record is committed: it must follow from the one before."""
        self.log.append(record)
        transactional_id = decode_key(record.key)
        assert transactional_id is not None
        history = self.histories.setdefault(transactional_id, History())
        before, after = history.stored, None if record.value is None else decode_value(record.value)
        history.stored = after
        if after is None:
            assert before is not None
            assert before.state.value in LEGAL["Dead"]["any"]
            self.owners.pop(transactional_id, None)
            return
        if before is None:
            assert (after.state.value, after.epoch) == ("Empty", 0) or len(self.log) == 1
        else:
            sources = LEGAL[after.state.value]
            second = sources.get("second", set()) if after.client_version >= 2 else set()
            assert before.state.value in sources["any"] | second, (before.state, after.state)
            if after.producer_id == before.producer_id:
                assert after.epoch >= before.epoch, "the epoch went back"
                if before.state.value == "Ongoing" and after.state.value == "PrepareAbort":
                    assert after.epoch > before.epoch or after.client_version < 2
            else:
                assert after.epoch == 0
        if before is None or after.producer_id != before.producer_id:
            assert after.producer_id not in history.ids, "a producer id came back"
        history.ids.add(after.producer_id)
        if after.state.value.startswith("Prepare"):
            history.last_end, history.handed, history.marked = after, None, set()
        if after.state.value.startswith("Complete"):
            assert history.last_end is not None
            assert history.last_end.partitions <= history.marked, "complete before its markers were written"

    def _check_owner(self, producer: Producer) -> None:
        owner = self.owners.get(producer.transactional_id)
        assert owner is producer, "a producer that was fenced had its way"

    def _check_current(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        stored = self.histories[transactional_id].stored
        assert stored is not None
        assert (stored.producer_id, stored.epoch) == (producer_id, epoch), "told of what is not stored"

    def _check_markers(self, due: MarkersDue) -> None:
        history = self.histories[due.transactional_id]
        stored = history.stored
        assert stored is not None
        assert stored.state.value == ("PrepareCommit" if due.committed else "PrepareAbort")
        assert (stored.producer_id, stored.epoch) == (due.producer_id, due.epoch)
        assert stored.partitions == due.partitions
        history.handed, history.marked = due, set()

    def check_read_back(self) -> None:
        assert not self.under_way
        read = {subject.id: subject for subject in self._read_back().subjects()}
        held = {subject.id: subject for subject in self.machine.subjects()}
        assert read.keys() == held.keys()
        for name, subject in held.items():
            assert subject.stored == read[name].stored
            assert subject.pending == read[name].pending
            assert subject.unmarked <= read[name].unmarked

    def check_sizes(self) -> None:
        assert self.machine.subjects_bytes == sum(s.size_bytes for s in self.machine.subjects())


def _nobody(reply: Any) -> None:
    raise AssertionError(f"nobody asked for {reply}")
