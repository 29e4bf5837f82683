"""Produce and Fetch, the two requests that carry messages: no task, no future, no generic decoder.

Called by the dispatcher with the frame as received. What is returned goes out at once; None means that the answer
follows (the request waits), or that there is none (acks=0).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, ProtocolError
from penstock.core.limits import SYNCS_OF_REQUEST_MAX, TURN_ITEMS_MAX
from penstock.core.session import Session
from penstock.core.turns import give_way
from penstock.frontends.kafka.hot_fetch import (
    FetchOutcome,
    KafkaFetches,
    refused_fetch,
    refused_follower,
    taken_apart,
)
from penstock.frontends.kafka.hot_transactions import TransactionalRequest
from penstock.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, UnreadableBatch
from penstock.records.compression import Codec
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.acknowledging import ALL, PendingBatches, is_acknowledged
from penstock.services.transactions.admission import ADMITTED, Admission
from penstock.services.transactions.verifying import TransactionVerifier
from penstock.services.writer import RefusedRecords, Writer
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka import produce as produce_codec

if TYPE_CHECKING:
    from penstock.core.lease import Lease

_ANSWERED_ACKS = (1, -1)
# What a handler returns when its request was taken care of but has no answer yet.
_ANSWER_FOLLOWS: list[object] = []
# Requests up to this size have their records opened on the loop, where they must be: some 100 µs.
_OPENED_HERE_BYTES_MAX = 2 * 1024
_ISOLATION_LEVELS = (0, 1)  # read uncommitted, read committed
_Single = tuple[int, int, bytes, int, int, int, int]  # what `encode_single` takes
_ZSTD_SINCE = 7  # the Produce version whose clients can be expected to know it


class Reply(Protocol):
    @property
    def session(self) -> Session: ...

    abandoned: Callable[[], None] | None

    def send(self, parts: list[object]) -> None: ...


class Asker(Protocol):
    """The connection, as far as a request needs it."""

    session: Session

    def defer(self, abandoned: Callable[[], None] | None = None, held_bytes: int = 0) -> Reply: ...
    def run(self, work: object, held_bytes: int = 0) -> None: ...
    def abort(self) -> None: ...


class HotPath:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: PartitionTable,
        writer: Writer,
        fetches: KafkaFetches,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        """Without a `verifier` there are no transactions."""
        self._loop = loop
        self._verifier = verifier
        self._table = table
        self._writer = writer
        self._fetches = fetches
        self._hints = fetches.hints
        self.write_held = writer.write_held

    # -- Produce ---------------------------------------------------------------------------------------------

    def produce(
        self, asker: Asker, frame: memoryview, position: int, version: int, correlation_id: int
    ) -> list[object] | None:
        if version >= produce_codec.FLEXIBLE_SINCE:
            answer = self._produce_single(asker, frame, position, version, correlation_id)
            if answer is not None:
                return answer
        transactional_id, acks, timeout_ms, topics = produce_codec.decode_request(frame, position, version)
        if is_many := len(topics) != 1 or len(topics[0][1]) != 1:
            topics = _distinct(topics)
            is_many = sum(len(partitions) for _, partitions in topics) > TURN_ITEMS_MAX
        opens = self._opens_batches(topics, version)
        transaction: TransactionalRequest | None = None
        if transactional_id is not None and self._verifier is not None:
            transaction = TransactionalRequest(
                self._verifier, transactional_id, version, frame, topics, self._topic
            )
        waits = transaction is not None and not transaction.is_admitted
        if is_many or waits or (opens and not _is_cheap_to_open(frame, topics)):
            request = asker, frame, topics, acks, timeout_ms, version, correlation_id
            produce = partial(self._produce_in_turns, *request)
            asker.run(produce(None) if transaction is None else transaction.asked(produce))
            return None
        admission = None if transaction is None else ADMITTED
        pending: PendingBatches | None = None
        answered: list[produce_codec.TopicAnswer] = []
        for name, partitions in topics:
            answers: list[produce_codec.PartitionAnswer] = []
            topic = self._topic(name, version)
            for number, start, end in partitions:
                batch = frame[start:end] if start >= 0 else None
                last = self._append(
                    answers, topic, number, batch, acks, version, opens=opens, admission=admission
                )
                if last < 0 or not acks:
                    continue
                partition = topic.led[number]  # type: ignore[union-attr]
                alone = partition.leading is None
                if not (partition.is_committed(last) if alone else is_acknowledged(partition, acks, last)):
                    if pending is None:
                        pending = PendingBatches(
                            partial(self._send_produced, asker.defer(), correlation_id, version, answered)
                        )
                    pending.wait_for(partition, acks, last, partial(_refused, answers, len(answers) - 1))
            answered.append((name, answers))
        if acks == 0:
            _close_on_error(answered)
            return None
        if pending is not None:
            pending.expire_after(self._loop, timeout_ms)
            return None
        return self.produced(asker.session, correlation_id, version, answered)

    def produced(
        self, session: Session, correlation_id: int, version: int, answered: list[produce_codec.TopicAnswer]
    ) -> list[object]:
        """The answer, with the leaders of what is led elsewhere, where the client finds them."""
        leader_of, endpoint_of = self._hints.leader_of, self._hints.endpoint_of(session.listener)
        return [
            produce_codec.encode_response(
                correlation_id, version, answered, leader_of=leader_of, endpoint_of=endpoint_of
            )
        ]

    def _send_produced(
        self, reply: Reply, correlation_id: int, version: int, answered: list[produce_codec.TopicAnswer]
    ) -> None:
        reply.send(self.produced(reply.session, correlation_id, version, answered))

    def _produce_single(
        self, asker: Asker, frame: memoryview, position: int, version: int, correlation_id: int
    ) -> list[object] | None:
        """The common case, without detours: one batch that is stored. None leaves everything else to `produce`."""
        single = produce_codec.decode_single(frame, position, version)
        if single is None:
            return None
        acks, name, number, start, end = single
        by_id = version >= produce_codec.TOPIC_IDS_SINCE
        topic = (self._table.by_id if by_id else self._table.by_name).get(name)
        partition = topic.led.get(number) if topic is not None else None
        if topic is None or partition is None or topic.opens_batches or acks not in _ANSWERED_ACKS:
            return None
        if partition.leading is not None:
            return None  # other replicas are waited for, and not for ever
        try:
            first, last, append_time = self._writer.append(topic, partition, frame[start:end], hold=True)
        except ApiError as error:
            # Said here, and not found out again the long way: the log may have stamped the batch before it failed.
            refusal = (number, error.code, -1, -1, _log_start_for(error, partition), _why(error))
            return self.produced(asker.session, correlation_id, version, [(name, [refusal])])
        log_start = partition.log.start_offset
        if partition.sync_before_ack and last >= partition.limits.high_watermark.offset:
            answer = (correlation_id, version, name, number, first, append_time, log_start)
            partition.limits.wait_for_commit(last, PendingSingle(asker.defer(), self, answer))
            return _ANSWER_FOLLOWS
        return [
            produce_codec.encode_single(correlation_id, version, name, number, first, append_time, log_start)
        ]

    def _opens_batches(self, topics: list[produce_codec.TopicRecords], version: int) -> bool:
        for name, _ in topics:
            topic = self._topic(name, version)
            if topic is not None and topic.opens_batches:
                return True
        return False

    def _topic(self, name: bytes, version: int) -> Topic | None:
        if version >= produce_codec.TOPIC_IDS_SINCE:
            return self._table.by_id.get(name)
        return self._table.by_name.get(name)

    def _append(
        self,
        answers: list[produce_codec.PartitionAnswer],
        topic: Topic | None,
        number: int,
        batch: memoryview | None,
        acks: int,
        version: int,
        *,
        opens: bool = False,
        admission: Admission | None = None,
    ) -> int:
        """Store one batch and note the answer; returns its last offset, or -1 when it was refused."""
        log_start = -1
        try:
            if acks < ALL:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if topic is None:
                by_id = version >= produce_codec.TOPIC_IDS_SINCE
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition = self._writer.led(topic, number, acks)
            if batch is None:
                raise ApiError(ErrorCode.INVALID_RECORD, "the records are null")
            if version < _ZSTD_SINCE:
                _refuse_zstd(batch)
            log_start = partition.log.start_offset
            if opens and topic.opens_batches:
                batch = self._writer.open_batch(topic, number, batch)
            first, last, append_time = self._writer.append(
                topic, partition, batch, hold=False, admission=admission
            )
        except ApiError as error:
            if isinstance(error, UnreadableBatch):
                log_start = -1  # as in Kafka: the log was never asked
            answers.append((number, error.code, -1, -1, log_start, _why(error)))
            return -1
        answers.append((number, 0, first, append_time, log_start, None))
        return last

    async def _produce_in_turns(
        self,
        asker: Asker,
        frame: memoryview,
        topics: list[produce_codec.TopicRecords],
        acks: int,
        timeout_ms: int,
        version: int,
        correlation_id: int,
        admission: Admission | None,
    ) -> list[object] | Callable[[Reply], None] | None:
        """The rare kinds: very many batches, or one must be opened first, in a thread (`compression.type`, compaction),
        or the coordinator of a transaction must be asked.

        Its connection leaves the frame where it is until all are appended; others may wait for that memory.
        """
        committed = self._loop.create_future()
        pending = PendingBatches(partial(committed.set_result, None))
        pending.waiting += 1  # our own, so that it cannot be done before the last batch is appended
        answered: list[produce_codec.TopicAnswer] = []
        at = count()
        syncing: deque[Lease] = deque()
        for name, partitions in topics:
            answers: list[produce_codec.PartitionAnswer] = []
            topic = self._topic(name, version)
            for number, start, end in partitions:
                await give_way(next(at))
                if len(syncing) == SYNCS_OF_REQUEST_MAX and (lease := syncing.popleft()).is_syncing:
                    await lease.given_back()
                batch = frame[start:end] if start >= 0 else None
                if topic is not None and batch is not None:
                    try:
                        batch = await self._writer.opened(topic, number, batch, lambda: asker.session.is_lost)
                    except ApiError as error:
                        if number in topic.partitions:  # led or not; else it was moved away, and that is told
                            start_offset = _log_start_for(error, topic.partitions[number])
                            answers.append((number, error.code, -1, -1, start_offset, _why(error)))
                            continue
                last = self._append(answers, topic, number, batch, acks, version, admission=admission)
                if topic is not None and last >= 0:
                    partition = topic.led[number]
                    syncing.append(partition.lease)
                    if not is_acknowledged(partition, acks, last):
                        pending.wait_for(partition, acks, last, partial(_refused, answers, len(answers) - 1))
            answered.append((name, answers))
        pending.one_done()
        if acks == 0:
            _close_on_error(answered)
            return None
        if committed.done():
            return self.produced(asker.session, correlation_id, version, answered)
        pending.expire_after(self._loop, timeout_ms)
        send = self._send_produced
        return lambda r: committed.add_done_callback(lambda _: send(r, correlation_id, version, answered))

    # -- Fetch -----------------------------------------------------------------------------------------------

    def fetch(
        self, asker: Asker, frame: memoryview, position: int, version: int, correlation_id: int
    ) -> list[object] | None:
        request = fetch_codec.decode_request(frame, position, version)
        if request.isolation_level not in _ISOLATION_LEVELS:
            return refused_fetch(request, version, correlation_id)
        if request.replica_id >= 0 and request.replica_id != asker.session.broker:
            return refused_follower(request, version, correlation_id)
        outcome = FetchOutcome(asker, self._fetches, correlation_id, version)
        try:
            give_up = self._fetches.fetch(request, version, outcome)
        except ApiError as error:
            return fetch_codec.encode_response(correlation_id, version, [], error=error.code)
        return outcome.result(give_up, len(frame), request.session_id)

    async def fetch_large(
        self,
        asker: Asker,
        frame: memoryview,
        position: int,
        version: int,
        correlation_id: int,
        in_thread: Callable[..., Any],
    ) -> list[object] | Callable[[Reply], None]:
        """One that would hold up everybody else by being taken apart."""
        request, remembered = await in_thread(taken_apart, frame, position, version)
        if request.isolation_level not in _ISOLATION_LEVELS:
            refused: list[object] = await in_thread(refused_fetch, request, version, correlation_id)
            return refused
        if request.replica_id >= 0 and request.replica_id != asker.session.broker:
            return await in_thread(refused_follower, request, version, correlation_id)  # type: ignore[no-any-return]
        outcome = FetchOutcome(asker, self._fetches, correlation_id, version)
        try:
            give_up = self._fetches.fetch(request, version, outcome, remembered)
        except ApiError as error:
            return fetch_codec.encode_response(correlation_id, version, [], error=error.code)
        return outcome.result_behind(give_up)


class PendingSingle:
    """One stored batch whose commit is waited for: an `AckWaiter` that answers by itself."""

    __slots__ = ("_answer", "_hot", "_reply")

    def __init__(self, reply: Reply, hot: HotPath, answer: _Single) -> None:
        self._reply = reply
        self._hot = hot
        self._answer = answer

    def committed(self) -> None:
        self._reply.send([produce_codec.encode_single(*self._answer)])

    def failed(self, code: ErrorCode, message: str) -> None:
        correlation_id, version, name, number = self._answer[:4]
        answered: list[produce_codec.TopicAnswer] = [(name, [(number, code, -1, -1, -1, message)])]
        self._reply.send(self._hot.produced(self._reply.session, correlation_id, version, answered))


def _distinct(topics: list[produce_codec.TopicRecords]) -> list[produce_codec.TopicRecords]:
    """Each topic and partition once: of a partition named twice, the last counts, as in Kafka."""
    merged: dict[bytes, dict[int, produce_codec.PartitionRecords]] = {}
    for name, partitions in topics:
        merged.setdefault(name, {}).update((partition[0], partition) for partition in partitions)
    return [(name, list(partitions.values())) for name, partitions in merged.items()]


def _refused(answers: list[produce_codec.PartitionAnswer], at: int, code: ErrorCode, message: str) -> None:
    """A batch that was stored is not acknowledged after all."""
    answers[at] = (answers[at][0], code, -1, -1, -1, message)


def _is_cheap_to_open(frame: memoryview, topics: list[produce_codec.TopicRecords]) -> bool:
    """Whether opening all of its batches right here takes no longer than handing them to a thread."""
    if len(frame) > _OPENED_HERE_BYTES_MAX:
        return False
    at = ATTRIBUTES_POSITION + 1  # the codec's byte; whatever is compressed may be large
    starts = [start for _, partitions in topics for _, start, _ in partitions if start >= 0]
    return all(start + at < len(frame) and not frame[start + at] & CODEC_MASK for start in starts)


def _why(error: ApiError) -> str | produce_codec.RecordErrors | None:
    if isinstance(error, RefusedRecords):
        return produce_codec.RecordErrors(str(error), error.records)
    return error.message


def _log_start_for(error: ApiError, partition: Partition) -> int:
    """As in Kafka: unknown where the log was never asked."""
    return -1 if isinstance(error, UnreadableBatch) else partition.log.start_offset


def _refuse_zstd(batch: memoryview) -> None:
    if len(batch) > ATTRIBUTES_POSITION + 1 and batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK == Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_SINCE} or later"
        )


def _close_on_error(answered: list[produce_codec.TopicAnswer]) -> None:
    """A producer that wants no answer learns of an error by losing its connection, as in Kafka."""
    for _, answers in answered:
        for answer in answers:
            if answer[1]:
                raise ProtocolError(f"a batch sent with acks=0 was refused: {ErrorCode(answer[1]).name}")
