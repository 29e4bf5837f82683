"""A producer of whole batches: pipelined, idempotent, bounded.

Batches are stamped with a producer id and sequences of their partition when they are given, and sent as soon as their
broker has room: up to five requests under way per broker, each with at most one batch per partition. There is no
thread: `send` reads the answers that have come and waits only where too many bytes are held; `flush` waits for all.
What can be tried again is, until `delivery.timeout.ms` is over; the first batch that is refused for good ends the
producer, because those behind it could only be stored out of order.
"""

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from penstock.client.raw.cluster import Cluster, Route
from penstock.client.raw.errors import (
    ConnectionLostError,
    OptionError,
    ProduceError,
    RawError,
    TopicRecreatedError,
)
from penstock.client.raw.link import Link
from penstock.client.raw.partition_queue import PartitionQueue
from penstock.client.raw.produce_request import VERSION_MIN, TopicKey, request_parts, topic_key
from penstock.client.raw.producer_ids import new_producer
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.raw.stamping import Batch, Delivery, Producer, checked, following, stamped_head
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.records.batch import BatchHeader
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.produce import PartitionProduceResponse, ProduceResponse
from penstock.wire.kafka.primitives import Buffer
from penstock.wire.kafka.produce import TOPIC_IDS_SINCE

# Damaged on the network once may be; we checked the batch before it left.
_CORRUPT_TRIES = 3
# What is left out of one request for its header and names.
_OVERHEAD_BYTES = 1024


class Flight:
    """One request under way, and what is in it."""

    __slots__ = ("batches", "link", "sent_at", "ticket")

    def __init__(self, link: Link, ticket: int, batches: dict[tuple[TopicKey, int], Batch]) -> None:
        self.link = link
        self.ticket = ticket
        self.batches = batches
        self.sent_at = time.monotonic()


class RawProducer:
    """Leaving its `with` block flushes; leaving it by an exception forgets what is not acknowledged."""

    def __init__(
        self, cluster: Cluster, acks: int | None = None, *, identity: Producer | None = None
    ) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._acks = self._options.acks if acks is None else acks
        if self._acks not in (-1, 1):
            raise OptionError(f"acks={self._acks}: a producer that tries again needs answers, give 1 or all")
        self._producer = identity
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._flights: list[Flight] = []
        self._held_bytes = 0
        self._failure: RawError | None = None
        # Time runs for the batches only while the producer is at work: there is no thread to work meanwhile.
        self._left_at = time.monotonic()
        self._away_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._abandon()

    @property
    def failure(self) -> RawError | None:
        """Why this producer takes nothing more."""
        return self._failure

    @property
    def held_bytes(self) -> int:
        """Of batches that are not acknowledged yet."""
        return self._held_bytes

    def begin(self, at: TopicPartition, sequence: int, topic_id: uuid.UUID | None) -> None:
        """Before anything is sent there: the sequence of the first batch, and which topic of that name is meant."""
        queue = self._queues[at] = PartitionQueue(at)
        queue.sequence = sequence
        queue.topic_id = topic_id

    def send(self, at: TopicPartition, batch: Buffer) -> Delivery:
        """Take one whole batch, not to be changed by the caller until `flush`; raises the first failure so far."""
        self._check()
        header, view = checked(at, batch)
        with self._at_work():
            delivery = self._send(at, header, view)
        self._check()
        return delivery

    def _send(self, at: TopicPartition, header: BatchHeader, view: memoryview) -> Delivery:
        queue = self._queues.get(at)
        if queue is None:
            queue = self._queues[at] = PartitionQueue(at)
        head = stamped_head(view, self._identity(), queue.sequence)
        queue.sequence = following(queue.sequence, header.record_count)
        deadline = self._now() + self._options.delivery_timeout_ms / 1000
        batch = Batch(Delivery(at), head, view[len(head) :], deadline)
        queue.waiting.append(batch)
        self._held_bytes += batch.size_bytes
        self._dispatch(time.monotonic())
        self._collect()
        while self._held_bytes > self._options.in_flight_bytes_max:
            self._advance()
        return batch.delivery

    def flush(self) -> None:
        """Until every batch given is acknowledged; raises the first failure."""
        self._check()
        with self._at_work():
            while self._held_bytes:
                self._advance()
        self._check()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._away_s += time.monotonic() - self._left_at
        try:
            yield
        except RawError:
            raise
        except BaseException:
            # Somewhere between two steps: a batch may be neither waiting nor under way, and would be waited for.
            self._fail(RawError("the producer was interrupted: begin with a new one"))
            raise
        finally:
            self._left_at = time.monotonic()

    def _now(self) -> float:
        """The clock of deadlines, which stands still while nobody calls."""
        return time.monotonic() - self._away_s

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _identity(self) -> Producer:
        if self._producer is None:
            self._producer = new_producer(self._cluster)
        return self._producer

    # -- sending ------------------------------------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        """Send what can be sent at this moment."""
        under_way = Counter(flight.link for flight in self._flights)
        loads: dict[Link, list[tuple[PartitionQueue, Route]]] = {}
        slots = self._options.requests_in_flight_max
        oldest_first = [queue for queue in self._queues.values() if queue.ready and queue.not_before <= now]
        oldest_first.sort(key=lambda queue: queue.waiting[0].deadline)
        for queue in oldest_first:
            route = self._route(queue) if self._failure is None else None
            if route is not None and queue.may_go(route.link):
                loads.setdefault(route.link, []).append((queue, route))
        for link, queues in loads.items():
            while queues and self._failure is None and link.usable and under_way[link] < slots:
                self._send_request(link, queues)
                under_way[link] += 1
                queues = [(queue, route) for queue, route in queues if queue.ready]

    def _route(self, queue: PartitionQueue) -> Route | None:
        """Where the queue's batches go; None while that is not known."""
        first = queue.waiting[0]
        budget = RetryBudget(f"writing to {queue.at}", self._options, self._left_ms(first))
        try:
            route = self._cluster.route(queue.at, budget)
            if queue.topic_id is None:
                queue.topic_id = route.topic_id
            elif route.topic_id is not None and route.topic_id != queue.topic_id:
                raise TopicRecreatedError(queue.at.topic, queue.topic_id, route.topic_id)
        except RawError as error:
            self._cluster.doubt((queue.at,))
            self._trouble(queue, first, error)
            return None
        return route

    def _left_ms(self, batch: Batch) -> int:
        return max(0, int((batch.deadline - self._now()) * 1000))

    def _send_request(self, link: Link, queues: list[tuple[PartitionQueue, Route]]) -> None:
        """One request with the next batch of each queue, as far as they fit; a first one that is larger goes alone."""
        by_name = any(route.topic_id is None for _, route in queues)
        at_most = TOPIC_IDS_SINCE - 1 if by_name else 0x7FFF
        topics: dict[TopicKey, list[Batch]] = {}
        batches: dict[tuple[TopicKey, int], Batch] = {}
        room = self._options.request_bytes_max - _OVERHEAD_BYTES
        try:
            version = link.version(ApiKey.PRODUCE, at_least=VERSION_MIN, at_most=at_most)
            for queue, route in queues:
                if batches and queue.waiting[0].size_bytes > room:
                    continue
                key = topic_key(queue.at.topic, route.topic_id, version)
                batch = queue.take()
                queue.link = link
                room -= batch.size_bytes
                topics.setdefault(key, []).append(batch)
                batches[key, queue.at.partition] = batch
            parts = request_parts(version, self._acks, self._options.request_timeout_ms, topics)
            ticket = link.send_parts(ApiKey.PRODUCE, version, parts)
        except ConnectionLostError as error:
            # Part of it may have gone out: the same as an answer that never came.
            self._lost(batches, error)
        except RawError as error:
            self._fail(error)
        else:
            self._flights.append(Flight(link, ticket, batches))

    # -- answers ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Wait for something to happen, and take it in; the failure is raised once nothing is held any more."""
        now = time.monotonic()
        self._dispatch(now)
        if self._collect():
            # Also answers that came while something else was written or waited for on the same connection.
            return
        wake_at = [flight.sent_at + self._options.request_timeout_ms / 1000 for flight in self._flights]
        wake_at += [
            queue.not_before for queue in self._queues.values() if queue.ready and queue.not_before > now
        ]
        links = list(dict.fromkeys(flight.link for flight in self._flights))
        Link.await_any(links, min(wake_at, default=now) - now)
        self._collect()

    def _collect(self) -> bool:
        """Take in the answers that are here, and give up on those that are late; whether there were any."""
        found = False
        now = time.monotonic()
        patience_s = self._options.request_timeout_ms / 1000
        for flight in list(self._flights):
            if self._failure is not None:
                break
            try:
                answer: ProduceResponse | None = flight.link.take(flight.ticket)
                if answer is None:
                    if now - flight.sent_at >= patience_s:
                        raise flight.link.lose(f"no answer in {patience_s:.1f} s")
                    continue
            except ConnectionLostError as error:
                self._flights.remove(flight)
                self._lost(flight.batches, error)
            else:
                self._flights.remove(flight)
                self._land(flight, answer)
            found = True
        return found

    def _land(self, flight: Flight, answer: ProduceResponse) -> None:
        left = dict(flight.batches)
        for topic in answer.responses:
            for response in topic.partition_responses:
                for key in (topic.name, topic.topic_id):
                    batch = left.pop((key, response.index), None)
                    if batch is not None:
                        self._answered(batch, response)
        if left:
            self._lost(
                left, ConnectionLostError(f"the broker at {flight.link} left batches out of its answer")
            )

    def _answered(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        queue, code = self._queues.get(batch.at), answer.error_code
        if queue is None:
            return
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.delivery.offset = answer.base_offset
            self._held_bytes -= batch.size_bytes
            queue.delivered(batch)
            return
        error = ProduceError(code, batch.at, answer.error_message)
        gap = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.behind_a_failure(batch)
        damaged = code == ErrorCode.CORRUPT_MESSAGE and batch.tries >= _CORRUPT_TRIES
        if gap or (error.retriable and not damaged):
            self._again(queue, batch, error)
        else:
            self._fail(error)

    def _lost(self, batches: dict[tuple[TopicKey, int], Batch], error: RawError) -> None:
        for batch in batches.values():
            queue = self._queues.get(batch.at)
            if queue is not None:
                self._again(queue, batch, error)

    def _again(self, queue: PartitionQueue, batch: Batch, error: RawError) -> None:
        queue.failed(batch)
        self._cluster.doubt((queue.at,))
        self._trouble(queue, batch, error, tries=batch.tries)

    def _trouble(self, queue: PartitionQueue, batch: Batch, error: RawError, tries: int = 0) -> None:
        """Pause the queue before its next try; the end, when there is no time for one or it would not help."""
        budget = RetryBudget(f"writing to {queue.at}", self._options, self._options.delivery_timeout_ms)
        budget.retries = max(tries, queue.pauses)
        gap = isinstance(error, ProduceError) and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not error.retriable and not gap:
            self._fail(error)
        elif self._now() >= batch.deadline or tries > self._options.retries_max:
            self._fail(budget.given_up(error))
        else:
            queue.not_before = time.monotonic() + budget.next_pause_s()
            queue.pauses += 1

    def _fail(self, error: RawError) -> None:
        self._failure = self._failure or error
        self._abandon()

    def _abandon(self) -> None:
        for flight in self._flights:
            flight.link.forget(flight.ticket)
        self._flights.clear()
        self._queues.clear()
        self._held_bytes = 0
