"""What a task does: rows of a few partitions, in order, to the same partitions of the target.

Spark may run a task again, or end its rows early when it is cancelled. Either way what has arrived is a beginning of
what should, and the next attempt finds its end by looking there.

Nor do two of them harm each other that write at once, be they two runs or an attempt that was given up and lives on:
all attempts of one replay are one producer to the broker, and each begins with a place and the sequence that belongs
to it. So a sequence means the same record to all of them, and the broker stores each once, in order: a batch that
begins elsewhere than behind the last one is refused, and one that is cut as one that is there is a repeat of it, holds
the same, and is acknowledged as stored, which it is. Two that are cut alike go on side by side, which costs nothing
but their work.

The first batch of an attempt has a random number of records all the same: of two runs that mean to write different
records (one leaves out a file that it cannot read) one is refused where they are cut otherwise, and told. That is by
chance, and where each batch is one record there is none.
"""

import hashlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.client.raw import (
    Delivery,
    ProduceError,
    Producer,
    RawClient,
    RawOptions,
    RawProducer,
    TopicPartition,
    TopicRecreatedError,
)
from penstock.core.error_codes import ErrorCode
from penstock.records.batch import read_header
from penstock.records.columns.encode import encode
from penstock.spark.pipelines.replaying.errors import OtherRunError, OtherWriterError, TargetRemadeError
from penstock.spark.pipelines.replaying.headers import with_origin
from penstock.spark.pipelines.replaying.tail import Tail, look

# Producer ids of replays: above those that brokers give away, below those of relays.
_REPLAY_IDS = 1 << 61
_ID_BYTES = 7
_FIRST_ROWS_MAX = 64
# The offset of a repeat that the broker no longer remembers the place of.
_FORGOTTEN = -1
# Somebody who writes on and on is another run; what a killed attempt had under way arrives within a few looks.
_LOOKS_MAX = 10


def first_rows() -> int:
    """How many records the first batch of an attempt has at most."""
    return random.randint(1, _FIRST_ROWS_MAX)


@dataclass(slots=True)
class Done:
    """What a task did for one partition; `last` is the original offset of the last row, -1 when there was none."""

    partition: int
    rows: int = 0
    skipped: int = 0
    size_bytes: int = 0
    last: int = -1


@dataclass(frozen=True, slots=True)
class Writer:
    """Picklable: it travels to the executors with the job."""

    bootstrap: str
    topic: str
    source: str  # what the records say that they are from
    append: bool
    kafka: dict[str, str] = field(default_factory=dict)
    topic_id: str | None = None  # of the topic that the run began with; None: brokers do not tell it

    @property
    def identity(self) -> Producer:
        """To brokers; the same for whoever replays the same."""
        digest = hashlib.sha256(self.source.encode()).digest()
        return Producer(_REPLAY_IDS | int.from_bytes(digest[:_ID_BYTES]), 0)

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[Done]:
        """Rows by partition and offset."""
        try:
            return self._write(batches)
        except TopicRecreatedError as error:
            raise TargetRemadeError(self.topic) from error
        except ProduceError as error:
            if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            raise OtherRunError(str(error.at)) from error

    def _write(self, batches: Iterator[pa.RecordBatch]) -> list[Done]:
        options = RawOptions.from_kafka(self.kafka)
        queue: _PartitionQueue | None = None
        done: list[Done] = []
        with RawClient(self.bootstrap, options) as client, client.producer(self.identity) as producer:
            client.hear_all([self.topic])  # as `target.prepare`
            for batch in batches:
                for partition, part in _by_partition(batch):
                    if queue is None or queue.at.partition != partition:
                        if queue is not None:
                            done.append(queue.finish())
                        queue = _PartitionQueue(
                            self, options, client, producer, TopicPartition(self.topic, partition)
                        )
                    queue.write(part)
            if queue is not None:
                done.append(queue.finish())
        return done


class _PartitionQueue:
    """One partition of the target while its rows come."""

    def __init__(
        self,
        writer: Writer,
        options: RawOptions,
        client: RawClient,
        producer: RawProducer,
        at: TopicPartition,
    ) -> None:
        self.at = at
        self._writer = writer
        self._options = options
        self._producer = producer
        sequence, self._tail = _place(client, at, writer)
        topic_id = None if writer.topic_id is None else uuid.UUID(writer.topic_id)
        producer.begin(at, sequence, topic_id)
        self._is_first = True
        self._is_begun = False
        self._done = Done(at.partition)
        self._next = self._tail.end
        self._sent: list[tuple[Delivery, int]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        there = int(np.searchsorted(offsets.to_numpy(), self._tail.done, side="right"))
        self._done.skipped += there
        self._done.last = offsets[-1].as_py()
        rows = rows.slice(there)
        if self._is_first and rows.num_rows:
            self._is_first = False
            count = first_rows()
            self._send(rows.slice(0, count))
            rows = rows.slice(count)
        if rows.num_rows:
            self._send(rows)

    def _send(self, rows: pa.RecordBatch) -> None:
        in_ms = rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        headers = with_origin(rows.column("headers"), rows.column("offset"), in_ms, self._writer.source)
        for encoded in encode(
            rows.column("key"),
            rows.column("value"),
            timestamp=in_ms,
            headers=headers,
            compression=self._options.compression,
            batch_bytes_max=self._options.batch_bytes,
        ):
            count = read_header(encoded).record_count
            self._sent.append((self._producer.send(self.at, encoded), count))
            self._done.size_bytes += len(encoded)
            if not self._is_begun:
                # Alone: of two runs that mean different records the broker might take a later batch and not this one.
                self._is_begun = True
                self._producer.flush()
                if self._sent[0][0].offset == _FORGOTTEN:
                    # Others follow it that were not sent from here.
                    raise OtherRunError(str(self.at))
                self._check()
        self._done.rows += rows.num_rows
        self._check()

    def finish(self) -> Done:
        self._producer.flush()
        self._check()
        return self._done

    def _check(self) -> None:
        """Every acknowledged batch stands right behind the one before it, or behind others' records with `append`."""
        while self._sent and (offset := self._sent[0][0].offset) is not None:
            _, count = self._sent.pop(0)
            if offset == _FORGOTTEN:
                self._next += count
                continue
            if offset < self._next:
                # A repeat of what was there: this one counts otherwise than whoever wrote that.
                raise OtherRunError(str(self.at))
            if offset > self._next and not self._writer.append:
                raise OtherWriterError(str(self.at))
            self._next = offset + count


def _place(client: RawClient, at: TopicPartition, writer: Writer) -> tuple[int, Tail]:
    """Where this attempt goes on, and the sequence that belongs to it: nobody wrote between the question and the look.

    With the sequence of before the first batch would be taken for a repeat of what was written meanwhile, and with that
    of after it records that were seen as missing would be written twice.
    """
    producer_id = writer.identity.producer_id
    sequence = client.next_sequence(at, producer_id)
    for _ in range(_LOOKS_MAX):
        tail = look(client, at, writer.source, append=writer.append)
        before, sequence = sequence, client.next_sequence(at, producer_id)
        if sequence == before:
            return sequence, tail
    raise OtherRunError(str(at))


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    partitions = batch.column("partition").to_numpy()
    if not len(partitions):
        return
    cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, stop in pairwise(cuts):
        yield int(partitions[start]), batch.slice(start, stop - start)
