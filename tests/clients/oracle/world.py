"""What both brokers hold before the comparison: the same topics, records, producers and settings."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiokafka import codec
from tests.clients.oracle.batches import Batch, record
from tests.clients.oracle.groups import Groups
from tests.clients.oracle.model import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
)

from penstock.wire.kafka.generated import (
    create_topics,
    delete_records,
    delete_topics,
    init_producer_id,
    list_offsets,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.oracle.sides import Side

SETTLE_S = 20.0
POLL_S = 0.02
SPARES_AT_ONCE = 40
SPARE_PARTITIONS = 2
PRODUCERS = 8
TRIMMED_TO = 7
HOUR_MS = 3_600_000
# One time for the whole run, so that what a broker answers about records can be compared to the digit: long
# enough ago not to be taken for the broker's clock, recent enough for retention to leave the records alone.
EPOCH_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS - HOUR_MS

FIXTURES: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "timed": (1, {}),
    "unordered": (1, {}),
    "compact": (1, {"cleanup.policy": "compact"}),
    "append": (1, {"message.timestamp.type": "LogAppendTime"}),
    "trimmed": (1, {}),
    "codecs": (1, {}),
    "idempotent": (1, {}),
    "configured": (2, {"retention.ms": "3600000", "max.message.bytes": "2000000", "flush.ms": "1000"}),
    "dotted.name": (1, {}),
    "empty": (2, {}),
}
# Topics that an API's requests change; each version gets its own.
OWN_TOPICS: dict[int, dict[str, tuple[int, dict[str, str]]]] = {
    PRODUCE: {
        "plain": (2, {}),
        "compact": (1, {"cleanup.policy": "compact"}),
        "append": (1, {"message.timestamp.type": "LogAppendTime"}),
        "strict": (1, {"min.insync.replicas": "2"}),
        "recent": (1, {"message.timestamp.before.max.ms": "1000"}),
        "small": (1, {"max.message.bytes": "1000"}),
        "idempotent": (1, {}),
        "fenced": (1, {}),
    },
    DELETE_RECORDS: {"shrinking": (1, {})},
}
SHRINKING_BATCHES = 40
FIRST_SEQUENCES = 8


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: codec.gzip_encode,
    2: codec.snappy_encode,
    3: codec.lz4_encode,
    4: codec.zstd_encode,
}


def compressed(codec_id: int, count: int = 5, timestamp_ms: int = EPOCH_MS) -> bytes:
    """A batch of `count` records under a codec."""
    values = tuple(b"value %d of many" % number for number in range(count))
    plain = b"".join(record(delta, value) for delta, value in enumerate(values))
    return Batch(
        values, attributes=codec_id, timestamp_ms=timestamp_ms, payload=bytes(COMPRESS[codec_id](plain))
    ).encode()


def produce_request(topic: str, partition: int, records: bytes | None, acks: int = 1) -> Any:
    data = produce.PartitionProduceData(index=partition, records=records)
    topic_data = produce.TopicProduceData(name=topic, partition_data=[data])
    return produce.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic_data])


@dataclass
class World:
    left: Side
    right: Side
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _own: dict[tuple[int, int, str], str] = field(default_factory=dict)
    _outworn: list[str] = field(default_factory=list)
    _starts: dict[str, int] = field(default_factory=dict)
    _sequences: dict[int, int] = field(default_factory=dict)
    _spares: list[str] = field(default_factory=list)
    _serial: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.sides, self.fresh_name)

    @property
    def topics(self) -> list[str]:
        return sorted(FIXTURES)

    def fresh_name(self, stem: str) -> str:
        return f"{stem}-{next(self._serial)}"

    # Setting up

    def build(self) -> None:
        for side in self.sides:
            side.look()
        self.create(FIXTURES)
        for side in self.sides:
            self._make_producers(side)
        self._fill()

    def create(self, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
        """Make topics on both sides, and wait until they can be written to."""
        request = create_topics.CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                create_topics.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        create_topics.CreatableTopicConfig(name=key, value=value)
                        for key, value in configs.items()
                    ],
                )
                for name, (partitions, configs) in topics.items()
            ],
        )
        for side in self.sides:
            answer = side.call(CREATE_TOPICS, 4, request)
            failed = [f"{topic.name}: {topic.error_code}" for topic in answer.topics if topic.error_code]
            if failed:
                raise RuntimeError(f"{side.name} did not make the topics to compare on: {failed}")
        wanted = [(name, number) for name, (count, _) in topics.items() for number in range(count)]
        for side in self.sides:
            self._wait(side, lambda side=side: self._serves(side, wanted), f"topics {list(topics)}")
            side.look()

    def _serves(self, side: Side, wanted: list[tuple[str, int]]) -> bool:
        """Metadata knows a topic before its log takes writes; the log's end is the better sign."""
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=name,
                    partitions=[list_offsets.ListOffsetsPartition(partition_index=number, timestamp=-1)],
                )
                for name, number in wanted
            ],
        )
        answer = side.call(LIST_OFFSETS, 3, request)
        return all(partition.error_code == 0 for topic in answer.topics for partition in topic.partitions)

    def _wait(self, side: Side, condition: Any, what: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{side.name}: still waiting for {what} after {SETTLE_S:.0f} s")
            time.sleep(POLL_S)

    def _make_producers(self, side: Side) -> None:
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def gather() -> bool:
            # Kafka needs a moment after its start before it hands out the first ids.
            answer = side.call(INIT_PRODUCER_ID, 1, request)
            if answer.error_code == 0:
                side.producer_ids.append(answer.producer_id)
            return len(side.producer_ids) == PRODUCERS

        self._wait(side, gather, "producer ids")

    def _fill(self) -> None:
        for number in range(20):
            values = tuple(b"plain %d.%d" % (number, index) for index in range(1 + number % 3))
            self.append("plain", 0, Batch(values, timestamp_ms=EPOCH_MS + 1000 * number).encode())
        for number in range(5):
            self.append("plain", 1, Batch((bytes([number]) * 3000,), timestamp_ms=EPOCH_MS).encode())
        for number in range(10):
            self.append("timed", 0, Batch((b"t", b"u"), timestamp_ms=EPOCH_MS + 1000 * number).encode())
        for shift in (5, 1, 9, 9, 3, 2, 8):
            self.append("unordered", 0, Batch((b"t",), timestamp_ms=EPOCH_MS + 1000 * shift).encode())
        for number in range(6):
            key = (b"key %d" % (number % 3),)
            self.append("compact", 0, Batch((b"v%d" % number,), key, EPOCH_MS).encode())
            self.append("append", 0, Batch((b"v%d" % number,), timestamp_ms=EPOCH_MS).encode())
        for number in range(12):
            self.append("trimmed", 0, Batch((b"v%d" % number,), timestamp_ms=EPOCH_MS + number).encode())
        for codec_id in COMPRESS:
            self.append("codecs", 0, compressed(codec_id))
        for number in range(4):
            for side in self.sides:
                batch = Batch(
                    (b"a", b"b"),
                    timestamp_ms=EPOCH_MS + number,
                    producer_id=side.producer_ids[0],
                    producer_epoch=0,
                    base_sequence=2 * number,
                )
                self._append_on(side, "idempotent", 0, batch.encode())
        self.ends["idempotent", 0] = 8
        if all(DELETE_RECORDS in side.advertised() for side in self.sides):
            self._trim("trimmed", TRIMMED_TO)

    def append(self, topic: str, partition: int, records: bytes) -> None:
        ends = [self._append_on(side, topic, partition, records) for side in self.sides]
        if ends[0] != ends[1]:
            raise RuntimeError(f"{topic}-{partition} grew apart while it was set up: {ends}")
        self.ends[topic, partition] = ends[0]

    def _append_on(self, side: Side, topic: str, partition: int, records: bytes) -> int:
        answer = side.call(PRODUCE, 7, produce_request(topic, partition, records))
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise RuntimeError(f"{side.name} refused set-up records for {topic}: {result.error_code}")
        last_delta = int.from_bytes(records[23:27], "big", signed=True)
        return int(result.base_offset) + last_delta + 1

    def _trim(self, topic: str, offset: int) -> None:
        part = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = delete_records.DeleteRecordsRequest(
            timeout_ms=10_000, topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[part])]
        )
        for side in self.sides:
            answer = side.call(DELETE_RECORDS, 1, request)
            if answer.topics[0].partitions[0].error_code:
                raise RuntimeError(f"{side.name} could not delete records of {topic}")

    # During the comparison

    def spare_topic(self) -> str:
        """A topic of two partitions that no request has touched."""
        if not self._spares:
            names = [self.fresh_name("spare") for _ in range(SPARES_AT_ONCE)]
            self.create({name: (SPARE_PARTITIONS, {}) for name in names})
            self._spares = names
        return self._spares.pop()

    def own_topic(self, api_key: int, version: int, kind: str) -> str:
        """A topic that only the requests of one API and version write to."""
        return self._own[api_key, version, kind]

    def make_own_topics(self, api_key: int, version: int) -> None:
        kinds = OWN_TOPICS.get(api_key, {})
        names = {kind: self.fresh_name(f"{kind}-v{version}") for kind in kinds}
        if names:
            self.create({name: kinds[kind] for kind, name in names.items()})
        for kind, name in names.items():
            if (api_key, version, kind) in self._own:
                self._outworn.append(self._own[api_key, version, kind])
            self._own[api_key, version, kind] = name
        if api_key == PRODUCE:
            self._begin_sequences(version, names["idempotent"], names["fenced"])
        if api_key == DELETE_RECORDS:
            for number in range(SHRINKING_BATCHES):
                self.append(
                    names["shrinking"], 0, Batch((b"a", b"b"), timestamp_ms=EPOCH_MS + number).encode()
                )

    def drop_own_topics(self, api_key: int, version: int) -> None:
        """Gone again, for what became of them may differ, and other requests list every topic."""
        names = [
            name for (api, made_for, _), name in self._own.items() if (api, made_for) == (api_key, version)
        ]
        names += self._outworn
        self._outworn = []
        if names:
            request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)
            for side in self.sides:
                side.call(DELETE_TOPICS, 3, request)
            self.settle()

    def _begin_sequences(self, version: int, idempotent: str, fenced: str) -> None:
        for side in self.sides:
            for sequence in range(FIRST_SEQUENCES):
                batch = Batch(
                    timestamp_ms=EPOCH_MS,
                    producer_id=side.producer_ids[1],
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                self._append_on(side, idempotent, 0, batch.encode())
            batch = Batch(
                timestamp_ms=EPOCH_MS, producer_id=side.producer_ids[2], producer_epoch=2, base_sequence=0
            )
            self._append_on(side, fenced, 0, batch.encode())
        self._sequences[version] = FIRST_SEQUENCES - 1

    def next_sequence(self, version: int) -> int:
        self._sequences[version] += 1
        return self._sequences[version]

    def last_sequence(self, version: int) -> int:
        return self._sequences[version]

    def long_gone_sequence(self, version: int) -> int:
        """Older than the five batches that a broker remembers."""
        return self._sequences[version] - 6

    def shrinking(self, version: int) -> str:
        return self._own[DELETE_RECORDS, version, "shrinking"]

    def next_start(self, topic: str) -> int:
        self._starts[topic] = min(self._starts.get(topic, 0) + 1, 2 * SHRINKING_BATCHES)
        return self._starts[topic]

    def settle(self, appearing: tuple[str, ...] = ()) -> None:
        """Wait until both sides tell of the same topics, each partition with a leader; not for ever."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            views = [_shape(side.look()) for side in self.sides]
            if views[0] == views[1] and all(view and set(appearing) <= view.keys() for view in views):
                return
            time.sleep(POLL_S)


def _shape(topics: dict[str, Any]) -> dict[str, int] | None:
    if any(part.leader_id < 0 for topic in topics.values() for part in topic.partitions):
        return None
    return {name: len(topic.partitions) for name, topic in topics.items()}
