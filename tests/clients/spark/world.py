"""A broker with topics of every kind: what both sources are asked to read.

Penstock has no transactions and no compaction yet, so the topics with aborted ranges, control batches and gaps are
made on Apache Kafka alone.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException, Producer
from tests.clients.spark.rows import Seen, of_consumer
from tests.integration.spark.topics import WAIT_S, Sent, Topics
from tools.peers import ApacheKafka, PenstockPeer

if TYPE_CHECKING:
    from tools.peers import BrokerProcess

NOON_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MIXED_ROUNDS = 40
KEYS = 30
POLL_S = 0.5
# The records are from a day long past: retention must not take them while they are compared.
FOREVER = {"log.retention.ms": -1}
# The cleaner looks for work so often; by default a test would wait 15 seconds for it.
EAGER_CLEANER = {"log.cleaner.backoff.ms": 100}


def mixed(first: int, count: int, partitions: int) -> list[Sent]:
    """Every shape of message in turn: keyed or not, empty, null, binary, long, with headers of all kinds."""
    long = bytes(range(256)) * 40
    shapes = (
        (b"plain", None, ()),
        (b"keyed", b"key", ()),
        (None, b"tombstone", ()),
        (b"", b"", ()),
        (b"\xff\x00\xfe", b"\x80", (("a", b"1"),)),
        (b"headed", None, (("a", b"1"), ("a", None), ("ü", b""), ("", b"\x00"))),
        (long, b"long", (("h", long),)),
    )
    sent = []
    for number in range(first, first + count):
        value, key, headers = shapes[number % len(shapes)]
        value = value if not value else b"%s-%d" % (value, number)
        sent.append(Sent(value, key, number % partitions, NOON_MS + number * 1000, headers))
    return sent


def _abort(producer: Producer) -> None:
    """Unless the broker did so first: it waits no longer than a quarter of an hour for a transaction to end."""
    with suppress(KafkaException):
        producer.abort_transaction(WAIT_S)


class World:
    """`with World("kafka") as world: world.bootstrap, world.mixed, world.there(topic)`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._peer: BrokerProcess = (
            PenstockPeer(FOREVER) if kind == "penstock" else ApacheKafka(FOREVER | EAGER_CLEANER)
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._peer)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return self._peer.bootstrap

    @cached_property
    def topics(self) -> Topics:
        return Topics(self.bootstrap, prefix="world")

    def there(self, *names: str, committed: bool = False) -> list[Seen]:
        """What librdkafka reads: the word that both sources have to agree with."""
        return of_consumer(self.bootstrap, sorted(names), committed=committed)

    @cached_property
    def mixed(self) -> str:
        """Four partitions, the last one empty; every compression in every other one."""
        topic = self.topics.create("mixed", partitions=4)
        first = 0
        for codec in CODECS:
            self.topics.produce(topic, mixed(first, MIXED_ROUNDS, 3), **{"compression.type": codec})
            first += MIXED_ROUNDS
        return topic

    @cached_property
    def appended(self) -> str:
        """Stamped by the broker."""
        topic = self.topics.create(
            "appended", partitions=2, config={"message.timestamp.type": "LogAppendTime"}
        )
        for codec in CODECS:
            self.topics.produce(topic, mixed(0, 20, 2), **{"compression.type": codec})
        return topic

    @cached_property
    def empty(self) -> str:
        return self.topics.create("empty", partitions=2)

    @cached_property
    def trimmed(self) -> str:
        """Begins at 8 and at 12."""
        topic = self.topics.create("trimmed", partitions=2)
        self.topics.count_up(topic, 0, 60, partitions=2)
        self.topics.delete_records(topic, 0, 8)
        self.topics.delete_records(topic, 1, 12)
        return topic

    @cached_property
    def transactions(self) -> str:
        """Committed, aborted and plain records in turn, interleaved, and one transaction that stays open."""
        topic = self.topics.create("transactions", partitions=3)
        producers = [self._transactional(codec) for codec in ("none", "lz4", "zstd")]
        for round_ in range(12):
            for producer in producers:
                producer.begin_transaction()
            for part in range(3):
                for number, producer in enumerate(producers):
                    self._send(producer, topic, f"{round_}-{part}-{number}", count=5)
            self.topics.count_up(topic, round_ * 10, 10, partitions=3)
            for number, producer in enumerate(producers):
                aborted = (round_ + number) % 3 == 0
                (producer.abort_transaction if aborted else producer.commit_transaction)(WAIT_S)
        # Partition 2 ends with it: what comes after it, committed or not, nobody who reads committed records sees.
        late = self._transactional("none")
        late.begin_transaction()
        self._send(late, topic, "open", count=3, partition=2)
        self._stack.callback(_abort, late)
        self.topics.count_up(topic, 1000, 9, partitions=3)
        return topic

    def _transactional(self, codec: str) -> Producer:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex}
        producer = Producer(settings | {"compression.type": codec, "transaction.timeout.ms": 900_000})
        producer.init_transactions(WAIT_S)
        return producer

    @staticmethod
    def _send(producer: Producer, topic: str, text: str, *, count: int, partition: int | None = None) -> None:
        for number in range(count):
            where = number % 3 if partition is None else partition
            producer.produce(
                topic, f"{text}-{number}", key=text, partition=where, headers=[("n", b"%d" % number)]
            )
        assert producer.flush(WAIT_S) == 0

    @cached_property
    def compacted(self) -> str:
        """Gaps inside batches, whole batches gone, empty batches that only keep a producer's place."""
        config = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"}
        topic = self.topics.create(
            "compacted", partitions=2, config=config | {"delete.retention.ms": "86400000"}
        )
        for round_ in range(6):
            sent = [
                Sent(None if number % 7 == 3 and round_ % 2 else b"%d-%d" % (round_, number), b"%d" % number)
                for number in range(round_, KEYS, 1 + round_ % 3)
            ]
            both = [record._replace(partition=number % 2) for number, record in enumerate(sent)]
            settings = {"compression.type": CODECS[round_ % 5], "enable.idempotence": True}
            self.topics.produce(topic, both, **settings)
        for partition in range(2):  # another segment: only those before the last one are compacted
            self.topics.produce(topic, [Sent(b"last", b"last", partition, NOON_MS + 60_000)])
        while not self._is_compacted(topic):
            time.sleep(POLL_S)  # the test's own timeout ends it
        return topic

    def _is_compacted(self, topic: str) -> bool:
        keys = [(seen.partition, seen.key) for seen in self.there(topic)]
        return len(keys) == len(set(keys))
