"""One partition of a coordinator's topic in service: append, apply, and reply when it is committed.

State in memory changes as soon as something is decided, so that the next decision builds on it; nobody is told before
the records are committed. That holds for readers too: whatever is asked while records are under way is answered behind
them, since the answer may rest on what a crash could still take. When records cannot be committed, or not in time, or
anything goes wrong between a change in memory and its append, memory is ahead of the log: the shard goes offline,
everyone who waits is turned away, and it is read anew from the log, once all of that is committed.

While too few replicas are in sync for anything to be committed, nothing is decided that might have to be stored
(`may_store`): whoever asks for it is refused, timers and tombstones wait, and who only reads is answered as ever.

Records of one turn of the loop share a batch, and batches share a sync: no task, no timer, no future per request.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.groups.decision import NEVER, CoordinatorRecord, Decision, Now
from penstock.records.batch import read_header
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.replication.partition import Partition
from penstock.services.acknowledging import not_in_time, tell_committed
from penstock.services.coordinator.machine import CoordinatorKind, Machine, SettingsT, Subject
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.verification_guards import VerificationGuards
from penstock.services.writer import Writer

logger = logging.getLogger(__name__)

MachineT = TypeVar("MachineT", bound=Machine[Any])

# Records that gather in a turn of the loop are written once they are this many bytes.
_BATCH_BYTES = 512 * 1024
# How long what is due waits between two looks at whether it can be stored.
_LOOK_AGAIN_SECONDS = 1.0


class Status(Enum):
    LOADING = auto()
    ACTIVE = auto()
    OFFLINE = auto()


_ACTIVE = Status.ACTIVE  # looking it up in its class, in every request, takes longer than asking for it


class _Batch:
    """An `AckWaiter`: what was appended together, and who is told once it is committed."""

    __slots__ = ("_shard", "replies", "written_at")

    def __init__(self, shard: "Shard[Any, Any]") -> None:
        self._shard = shard
        self.written_at = inf
        self.replies: list[tuple[PendingReply, object]] = []

    def committed(self) -> None:
        self._shard.batch_committed(self)

    def failed(self, code: ErrorCode, message: str) -> None:
        self._shard.go_offline(f"{code.name}: {message}")


class Shard(Generic[MachineT, SettingsT]):
    def __init__(
        self,
        kind: CoordinatorKind[MachineT, SettingsT],
        partition: Partition,
        writer: Writer,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: SettingsT,
        commit_timeout_s: float,
        went_offline: Callable[[], None],
    ) -> None:
        """`went_offline` is called when somebody has to load it anew."""
        self._commit_timeout_s = commit_timeout_s
        self._kind = kind
        self._went_offline = went_offline
        self.partition = partition
        self._writer = writer
        self.epoch = partition.leader_epoch  # under which it was begun
        self.settings = settings
        self.status = Status.LOADING
        self.state = kind.machine()
        self._loop = loop
        self._clock = clock
        self._builder: BatchBuilder | None = None
        self._transaction: BatchOptions | None = None  # of which the builder's records are a part
        self.guards = VerificationGuards()  # of those who ask whether a transaction is open
        self._gathering: _Batch | None = None  # not yet written
        self._under_way: dict[_Batch, None] = {}  # written, not yet committed
        self._commit_timer: asyncio.TimerHandle | None = None  # runs while any may be under way
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failure = ""  # what nobody foresaw, since it was last in service
        self.tried_at = -inf  # when it was last loaded, or could not be
        # Topics that changed, of which the state has not heard yet; None: it has heard of all.
        self.unheard: set[str] | None = None

    def now(self) -> Now:
        return Now(self._loop.time(), self._clock.now_ms())

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    def check_active(self) -> None:
        if self.status is not _ACTIVE:
            is_loading = self.status is Status.LOADING
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
            )

    def check_listed(self) -> None:
        """ApiError while nobody knows all that it has: whoever lists what there is, is to ask again.

        Also while it is offline: it is loaded anew in a moment. COORDINATOR_NOT_AVAILABLE would be what Kafka says as
        it stops: its clients do not ask for a list of transactions again.
        """
        if self.status is not _ACTIVE:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def may_store(self) -> bool:
        """To be asked before anything is decided that may have to be stored: whether it could be committed by now."""
        if self._gathering is not None:
            return True  # asked already, in this turn
        leading = self.partition.leading
        return leading is None or not leading.is_short

    # -- decisions -------------------------------------------------------------------------------------------

    def decide(
        self, subject: Subject, rule: Callable[[], Decision], later: PendingReply | None = None
    ) -> None:
        """A subject's own decision: what memory has of it is what the records say, or further on."""
        try:
            before = subject.size_bytes
            decision = rule()
            self.state.subjects_bytes += subject.size_bytes - before
            for key, value in decision.records:
                self.append_applied(key, value, self._clock.now_ms())
            for waiting, reply in decision.replies:
                self.answer(waiting, reply)
            self.watch(subject)
        except Exception as error:
            self.fail(error, later)

    def store_in_turns(
        self, state: MachineT, rule: Callable[[], Iterator[list[CoordinatorRecord]]]
    ) -> Iterator[None]:
        """What `rule` finds to be stored, portion by portion: after each step others may have their turn.

        It ends when all is stored, or when `state`, of which the rule is, is no longer in service.
        """
        done = 0
        if self.state is not state:
            return
        try:
            for records in rule():
                self.store(records)
                done += 1 + len(records)
                if done >= TURN_ITEMS_MAX:
                    done = 0
                    yield
                if self.state is not state:
                    return
        except Exception as error:
            self.fail(error)

    def store(self, records: list[CoordinatorRecord]) -> None:
        """Records that change the state by being applied, as they will when they are read back."""
        try:
            for key, value in records:
                self.state.apply(key, value)
                self.append_applied(key, value, self._clock.now_ms())
        except Exception as error:
            self.fail(error)

    def answer(self, later: PendingReply, reply: object) -> None:
        """Once everything the reply may rest on is committed: at once, where nothing is under way."""
        if self.status is not _ACTIVE:
            later.refuse(ErrorCode.NOT_COORDINATOR)
        elif self._gathering is not None:
            self._gathering.replies.append((later, reply))
        elif self._under_way:
            next(reversed(self._under_way)).replies.append((later, reply))
        else:
            later.fill(reply)

    def answer_refused(self, later: PendingReply, code: ErrorCode) -> None:
        """A refusal may rest on what is under way as well."""
        if self._gathering is None and not self._under_way:
            later.refuse(code)
        else:
            self.answer(later, later.refusal(code))

    # -- writing ---------------------------------------------------------------------------------------------

    def append_applied(
        self, key: bytes, value: bytes | None, now_ms: int, transaction: BatchOptions | None = None
    ) -> None:
        """A record whose effect is already in the state; `transaction` says of which producer's it is a part."""
        if self.status is not _ACTIVE:
            return
        builder = self._builder
        if builder is None or transaction is not self._transaction:
            builder = self._begin_batch(transaction)
            if builder is None:
                return
        builder.append(value, key=key, timestamp=now_ms)
        if builder.size_bytes >= _BATCH_BYTES:
            self.flush()

    def _begin_batch(self, transaction: BatchOptions | None) -> BatchBuilder | None:
        if self._builder is None:
            self._loop.call_soon(self.flush)
        else:
            self.flush()  # a batch is of one producer
            if self.status is not _ACTIVE:
                return None
        self._transaction = transaction
        self._builder, self._gathering = BatchBuilder(transaction), _Batch(self)
        return self._builder

    def end_transaction(
        self, marker: bytearray, producer_id: int, *, committed: bool, later: PendingReply
    ) -> None:
        """Append this control batch: what the producer wrote here before counts from now on, or never."""
        self.flush()
        if self.status is not _ACTIVE:
            later.refuse(ErrorCode.NOT_COORDINATOR)
            return
        try:
            self.guards.marker_came(producer_id, read_header(marker).producer_epoch)
            self.state.transaction_ended(producer_id, committed=committed)
        except Exception as error:
            self.fail(error, later)
            return
        batch = _Batch(self)
        batch.replies.append((later, ErrorCode.NONE))
        self._write(lambda: marker, batch)

    def flush(self) -> None:
        """Write what has gathered."""
        builder, batch = self._builder, self._gathering
        if builder is None or batch is None:
            return
        self._builder = self._gathering = None
        self._write(builder.build, batch)

    def _write(self, build: Callable[[], bytearray], batch: _Batch) -> None:
        self._under_way[batch] = None
        partition = self.partition
        try:
            last = self._writer.append_own(partition, build())
        except ApiError as error:
            self.go_offline(str(error))
            return
        except Exception as error:
            self.fail(error)
            return
        batch.written_at = self._loop.time()
        tell_committed(partition, last, batch)
        if self._commit_timer is None and self._under_way:
            self._watch_commits(self._commit_timeout_s)

    def _watch_commits(self, delay_s: float) -> None:
        """One timer for all that is under way: the oldest tells when to look again."""
        self._commit_timer = self._loop.call_later(delay_s, self._check_commits)

    def _check_commits(self) -> None:
        self._commit_timer = None
        if not self._under_way:
            return
        left_s = next(iter(self._under_way)).written_at + self._commit_timeout_s - self._loop.time()
        if left_s > 0:
            self._watch_commits(left_s)
        elif self.partition.leading is None:
            self._watch_commits(self._commit_timeout_s)  # a disk of our own answers, or fails
        else:
            self.go_offline(str(not_in_time()))

    def batch_committed(self, batch: _Batch) -> None:
        if batch in self._under_way:
            del self._under_way[batch]
            for later, reply in batch.replies:
                later.fill(reply)

    # -- time ------------------------------------------------------------------------------------------------

    def watch(self, subject: Subject) -> None:
        """Look at it again at its earliest deadline; one that only moved back costs nothing."""
        if subject.earliest < subject.armed_at:
            subject.armed_at = subject.earliest
            timer = self._timers.pop(subject.id, None)
            if timer is not None:
                timer.cancel()
            self._timers[subject.id] = self._loop.call_at(subject.earliest, self._due, subject)

    def _due(self, subject: Subject) -> None:
        subject.armed_at = NEVER
        self._timers.pop(subject.id, None)
        if self.status is not _ACTIVE or not self.state.holds(subject):
            return
        if self.may_store():
            self.decide(subject, lambda: self.state.expire(subject, self.settings, self.now()))
            return
        # Nobody waits for longer than it was to be: who is refused asks again, and takes up the place it has.
        for later in list(self.state.waiting(subject)):
            later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        subject.armed_at = self._loop.time() + _LOOK_AGAIN_SECONDS
        self._timers[subject.id] = self._loop.call_at(subject.armed_at, self._due, subject)

    # -- lifecycle -------------------------------------------------------------------------------------------

    def go_active(self) -> None:
        """Everything was read."""
        self.status = Status.ACTIVE
        self._failure = ""

    def begin_in_turns(self, state: MachineT) -> Iterator[None]:
        """The deadlines of all that was read begin; some may have been asked about before."""
        for number, subject in enumerate(list(state.subjects()), start=1):
            if self.state is not state:
                return
            if state.holds(subject):
                self.decide(subject, partial(state.begin, subject, self.settings, self.now()))
            if number % TURN_ITEMS_MAX == 0:
                yield

    def restart(self) -> None:
        """The log can be written again: to be loaded anew."""
        self.status = Status.LOADING

    def fail(self, error: Exception, later: PendingReply | None = None) -> None:
        """A bug of ours, behind a change in memory: nobody knows what of it will be in the log."""
        reason = f"unforeseen: {error!r}"
        # Once: what fails as it is loaded is tried every second.
        if reason != self._failure:
            what = f"{self._kind.subjects} of {self.partition.topic}-{self.partition.index}"
            logger.error("the %s fail unexpectedly, and are tried again", what, exc_info=error)
        self._failure = reason
        self.go_offline(reason)
        if later is not None:
            # Whoever asked shall not ask the same again and again; the others may.
            later.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def go_offline(self, reason: str, *, planned: bool = False) -> None:
        """Memory may be ahead of the log: nothing of it counts any more. What is `planned` needs nobody's attention."""
        if self.status is Status.OFFLINE:
            return
        # Of none, nobody needs to know either.
        level = logging.WARNING if any(self.state.subjects()) and not planned else logging.DEBUG
        what = f"{self._kind.subjects} of {self.partition.topic}-{self.partition.index}"
        logger.log(level, "the %s are offline: %s", what, reason)
        self.status = Status.OFFLINE
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        waiting = [later for batch in self._under_way for later, _ in batch.replies]
        if self._gathering is not None:
            waiting += [later for later, _ in self._gathering.replies]
        waiting += [later for subject in self.state.subjects() for later in self.state.waiting(subject)]
        self._under_way.clear()
        self._builder = self._gathering = self._transaction = None
        self.unheard = None
        self.guards.void_all()
        self.state = self._kind.machine()
        for later in waiting:
            later.refuse(ErrorCode.NOT_COORDINATOR)
        self._went_offline()
