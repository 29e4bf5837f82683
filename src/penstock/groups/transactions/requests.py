"""What producers and partition leaders ask and are told, in words of this package; the front end translates."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import Ticket
from penstock.groups.transactions.layouts import NO_EPOCH, NO_ID, TopicPartition


class SpareIds:
    """Producer ids that the runtime has taken for us ahead of time: to decide is not to wait for one."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids = deque(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, producer_id: int) -> None:
        self._ids.append(producer_id)

    def take(self) -> int:
        """NO_ID: there is none at hand; whoever asked must come again."""
        return self._ids.popleft() if self._ids else NO_ID


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    level: int  # of `transaction.version`: how records are written, and how aborts of our own raise epochs
    timeout_max_ms: int
    idle_ms: int  # an id that nobody has used for so long is forgotten
    # A transaction's record must fit into a batch of its topic.
    record_bytes_max: int
    ids: SpareIds
    # Whoever writes markers: it is handed each `MarkersDue`, as a reply, once the Prepare record is committed.
    markers: Ticket = None


@dataclass(slots=True)
class InitProducerId:
    transactional_id: str
    timeout_ms: int
    # What the producer was given before, when it goes on after an error.
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    enable_two_phase: bool = False
    keep_prepared: bool = False

    @property
    def names_producer(self) -> bool:
        return self.producer_id != NO_ID


class InitReply(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class AddPartitions:
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    # Of transactions: clients add for themselves in the first, leaders add for them in the second.
    client_version: int = 0


@dataclass(slots=True)
class AddOffsets:
    producer_id: int
    epoch: int
    group_id: str
    offsets_partitions: int  # of `__consumer_offsets`


@dataclass(slots=True)
class End:
    producer_id: int
    epoch: int
    committed: bool
    client_version: int = 0  # 2: EndTxn from version 5 on


class EndReply(NamedTuple):
    error: ErrorCode
    # With which to go on, for clients of the second version.
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class MarkersDue:
    """Each of the partitions is to be told how the transaction ended; `ending.marked` takes what was done."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    client_version: int  # of transactions, in which leaders judge the marker's epoch
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
