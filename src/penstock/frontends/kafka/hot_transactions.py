"""Produce of transactional producers: which of a request's batches need a word of their transaction's coordinator."""

from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.replication.table import Topic
from penstock.replication.transactions import guard_for
from penstock.services.transactions.admission import ADMITTED, Admission, admitted
from penstock.services.transactions.verifying import Place, TransactionVerifier
from penstock.storage.open_transactions import Guard, OpenTransactions
from penstock.wire.kafka.produce import TopicRecords

# The version from which on clients leave it to leaders to add partitions, and the one that knows how to abort.
_ADDS_SINCE = 12
_ABORTABLE_SINCE = 11

T = TypeVar("T")
Transactional = dict[Place, tuple[Topic, BatchHeader]]


class TransactionalRequest:
    """One Produce request with a transactional id."""

    __slots__ = ("_given", "_guards", "_places", "_producers", "_transactional_id", "_verifier", "_version")

    def __init__(
        self,
        verifier: TransactionVerifier,
        transactional_id: str,
        version: int,
        frame: memoryview,
        topics: list[TopicRecords],
        topic_of: Callable[[bytes, int], Topic | None],
    ) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._version = version
        batches = _transactional(frame, topics, lambda name: topic_of(name, version))
        self._producers = {(header.producer_id, header.producer_epoch) for _, header in batches.values()}
        self._places = list(batches)
        self._given: list[tuple[OpenTransactions, int, Guard]] = []
        self._guards: Mapping[Place, Guard | None] = {}
        if len(self._producers) == 1:
            self._guards = {place: self._guard(place, *found) for place, found in batches.items()}

    def _guard(self, place: Place, topic: Topic, header: BatchHeader) -> Guard | None:
        partition = topic.led.get(place[1])
        if partition is None or topic.is_internal:
            return None  # refused by whoever writes
        try:
            guard = guard_for(partition, header, is_second=self._version >= _ADDS_SINCE)
        except ApiError:
            return None  # the same
        if guard is not None:
            self._given.append((partition.log.producers.transactions, header.producer_id, guard))
        return guard

    @property
    def is_admitted(self) -> bool:
        """Whether nobody has to be asked."""
        return len(self._producers) <= 1 and not any(self._guards.values())

    async def asked(self, produce: Callable[[Admission], Coroutine[object, object, T]]) -> T:
        """What `produce` comes to, behind the coordinator's answer."""
        try:
            return await produce(await self._admission())
        finally:
            for transactions, producer_id, guard in self._given:
                transactions.withdraw(producer_id, guard)

    async def _admission(self) -> Admission:
        if self.is_admitted:
            return ADMITTED
        if len(self._producers) > 1:  # a transaction is of one
            return Admission({}, dict.fromkeys(self._places, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        (producer,) = self._producers
        return await admitted(
            self._verifier,
            self._transactional_id,
            producer,
            self._guards,
            adds=self._version >= _ADDS_SINCE,
            names_abortable=self._version >= _ABORTABLE_SINCE,
        )


def _transactional(
    frame: memoryview, topics: list[TopicRecords], topic_of: Callable[[bytes], Topic | None]
) -> Transactional:
    found: Transactional = {}
    for name, partitions in topics:
        topic = topic_of(name)
        for number, start, end in partitions:
            if topic is None or start < 0 or end - start < HEADER_BYTES:
                continue  # whoever writes says what is wrong
            header = read_header(frame, start)
            if header.is_transactional and header.producer_id >= 0:
                found[topic.name, number] = topic, header
    return found
