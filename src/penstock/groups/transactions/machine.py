"""All transactional ids of one partition of `__transaction_state`, in the shape of `services.coordinator.machine`.

Each record says all there is to know of its id, but for the epoch before (`TransactionalId.last_epoch`).
"""

from collections.abc import Iterable, Iterator

from penstock.core.limits import TRANSACTIONAL_ID_BYTES
from penstock.groups.decision import CoordinatorRecord, Decision, KnownTopics, Now, Ticket
from penstock.groups.transactions import timeouts
from penstock.groups.transactions.init_producer_id import init_producer_id
from penstock.groups.transactions.layouts import decode_key, decode_value
from penstock.groups.transactions.requests import InitProducerId, TransactionSettings
from penstock.groups.transactions.states import DEAD
from penstock.groups.transactions.subject import TransactionalId


class TransactionMachine:
    __slots__ = ("_subjects", "size_bytes", "subjects_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0  # about what ids take, without their partitions
        self.subjects_bytes = 0  # about what their partitions take
        self._subjects: dict[str, TransactionalId] = {}

    # -- replay --------------------------------------------------------------------------------------------

    def apply(
        self, key: bytes | None, value: bytes | None, _offset: int = -1, _producer_id: int = -1
    ) -> bool:
        """One stored record. False: of a kind that is not known here. DecodeError: damaged; nothing was changed."""
        transactional_id = decode_key(key or b"")
        if transactional_id is None:
            return False
        if value is None:
            self._remove(transactional_id)
        else:
            self._add(TransactionalId.restored(transactional_id, decode_value(value)))
        return True

    def _add(self, subject: TransactionalId) -> None:
        self._remove(subject.id)
        self.size_bytes += TRANSACTIONAL_ID_BYTES + len(subject.id)
        self.subjects_bytes += subject.size_bytes
        self._subjects[subject.id] = subject

    def _remove(self, transactional_id: str) -> None:
        subject = self._subjects.pop(transactional_id, None)
        if subject is not None:
            self.size_bytes -= TRANSACTIONAL_ID_BYTES + len(transactional_id)
            self.subjects_bytes -= subject.size_bytes

    # -- in service ----------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionalId | None:
        return self._subjects.get(transactional_id)

    def find_or_unborn(self, transactional_id: str) -> TransactionalId:
        """One that is not known yet becomes known with its first record, so that refused requests leave nothing."""
        return self._subjects.get(transactional_id) or TransactionalId(transactional_id)

    def init_producer_id(
        self,
        subject: TransactionalId,
        request: InitProducerId,
        ticket: Ticket,
        settings: TransactionSettings,
        now: Now,
    ) -> Decision:
        decision = init_producer_id(subject, request, ticket, settings, now)
        if decision.records and not self.holds(subject):
            self._add(subject)
        return decision

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """Nothing of this topic is ever part of a transaction."""

    def subjects(self) -> Iterable[TransactionalId]:
        return self._subjects.values()

    def holds(self, subject: TransactionalId) -> bool:
        return self._subjects.get(subject.id) is subject

    def begin(self, subject: TransactionalId, settings: TransactionSettings, now: Now) -> Decision:
        return timeouts.begin(subject, settings, now)

    def expire(self, subject: TransactionalId, settings: TransactionSettings, now: Now) -> Decision:
        decision = timeouts.expire(subject, settings, now)
        if subject.state is DEAD:
            self._remove(subject.id)
        return decision

    def waiting(self, _subject: TransactionalId) -> Iterable[Ticket]:
        """Nobody: every request is answered by the decision about it, if only to come again."""
        return ()

    def hear_of_topics(
        self, _topics: KnownTopics, _names: Iterable[str] | None = None
    ) -> Iterator[list[CoordinatorRecord]]:
        """Nothing is stored for a topic that is gone: whoever writes markers counts its partitions as marked."""
        return iter(())
