"""One transactional id: what its last record says, what is known of it besides, and how it moves."""

from dataclasses import dataclass, field, replace

from penstock.core.limits import TRANSACTION_PARTITION_BYTES
from penstock.groups.decision import NEVER, CoordinatorRecord, Decision, Now
from penstock.groups.transactions.layouts import (
    NO_EPOCH,
    NO_ID,
    StoredTransaction,
    TopicPartition,
    encode_key,
    encode_value,
)
from penstock.groups.transactions.requests import MarkersDue, TransactionSettings
from penstock.groups.transactions.states import (
    COMPLETION,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
    check_transition,
)

EPOCH_MAX = 2**15 - 1
# The last epoch that a producer is given: one more is left, so that whoever has it can still be fenced.
EPOCH_GIVEN_MAX = EPOCH_MAX - 1
_UNBORN = StoredTransaction(NO_ID, NO_EPOCH, 0, EMPTY)


@dataclass(slots=True)
class TransactionalId:
    id: str
    stored: StoredTransaction = _UNBORN
    # The epoch before, which the same producer may still name: its answer may have been lost. Kafka 4.3 does not
    # store it, so after a reload such a producer is fenced.
    last_epoch: int = NO_EPOCH
    # Where it goes once all markers are written. Whoever asks meanwhile may already use the producer id that only the
    # completion brings, so nothing can be judged before.
    pending: TransactionState | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)  # of an end that was prepared
    # What whoever writes them was handed. News of any other is late: the epoch may be the same, where it stays.
    handed: MarkersDue | None = None
    earliest: float = NEVER  # its deadline, in seconds of the loop
    armed_at: float = NEVER  # the runtime's: when it will look here next

    @classmethod
    def restored(cls, transactional_id: str, stored: StoredTransaction) -> "TransactionalId":
        """As it was when it was written. Its deadlines and markers begin once it is in service."""
        subject = cls(transactional_id)
        subject.become(stored, NO_EPOCH)
        return subject

    @property
    def state(self) -> TransactionState:
        return self.stored.state

    @property
    def is_unborn(self) -> bool:
        """Nobody was ever given a producer id for it."""
        return self.stored.epoch == NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        return self.stored.epoch >= EPOCH_GIVEN_MAX

    @property
    def size_bytes(self) -> int:
        """About what its partitions take in memory."""
        return (len(self.stored.partitions) + len(self.unmarked)) * TRANSACTION_PARTITION_BYTES

    def become(self, stored: StoredTransaction, last_epoch: int) -> None:
        self.stored = stored
        self.last_epoch = last_epoch
        self.pending = COMPLETION.get(stored.state)
        self.unmarked = set(stored.partitions) if stored.state in PREPARED else set()
        self.handed = None

    def markers_due(self) -> MarkersDue:
        stored = self.stored
        return MarkersDue(
            self.id,
            stored.producer_id,
            stored.epoch,
            stored.state is PREPARE_COMMIT,
            stored.client_version,
            frozenset(self.unmarked),
        )


def record_of(transactional_id: str, stored: StoredTransaction, level: int) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(transactional_id), encode_value(stored, level))


def move(
    subject: TransactionalId,
    after: StoredTransaction,
    last_epoch: int,
    settings: TransactionSettings,
    now: Now,
    out: Decision,
) -> None:
    """Every change goes through here: checked, to be stored, and in memory from now on."""
    before = subject.stored
    check_transition(subject.id, before.state, after.state, after.client_version)
    rotates = after.producer_id != before.producer_id
    after = replace(after, previous_id=before.producer_id if rotates else NO_ID)
    # Encoded first: what cannot be stored must not be in memory either.
    out.records.append(record_of(subject.id, after, settings.level))
    subject.become(after, last_epoch)
    set_deadline(subject, settings, now)


def set_deadline(subject: TransactionalId, settings: TransactionSettings, now: Now) -> None:
    """Stored times are the wall's: those of an earlier coordinator count on."""
    stored = subject.stored
    if stored.state is ONGOING:
        if stored.started_ms > now.wall_ms:
            # Begun under a clock that was ahead. By ours it begins now, or it would be open for as much longer.
            stored = subject.stored = replace(stored, started_ms=now.wall_ms)
        due_ms = stored.started_ms + stored.timeout_ms + 1
    elif stored.state in IDLE and not subject.is_unborn:
        due_ms = stored.updated_ms + settings.idle_ms
    else:
        subject.earliest = NEVER
        return
    # At least a millisecond, whatever the wall's clock does: what is not due yet must not be looked at in a circle.
    subject.earliest = now.after_ms(max(due_ms - now.wall_ms, 1))
