"""The front door: one object for everything this package can do with a cluster."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.epochs import epoch_ends, settled_end
from penstock.client.raw.fetching import fetch, serves
from penstock.client.raw.model import Fetched, Heard, OffsetAt, Retirement, TopicInfo
from penstock.client.raw.offsets import list_offsets
from penstock.client.raw.options import RawOptions
from penstock.client.raw.policies import cleanup_policies
from penstock.client.raw.producing import RawProducer
from penstock.client.raw.retired import retirements
from penstock.client.raw.sequences import next_sequence
from penstock.client.raw.stamping import Producer
from penstock.client.raw.unanswered import produce_unanswered
from penstock.client.topic_partition import TopicPartition
from penstock.records.batch import Buffer

_DEFAULTS = RawOptions()


class RawClient:
    """Blocking, for one thread at a time; a context manager. Connects when it has to."""

    def __init__(self, bootstrap: str, options: RawOptions = _DEFAULTS) -> None:
        self._cluster = Cluster(bootstrap, options)
        self._producers: dict[int, RawProducer] = {}

    @property
    def options(self) -> RawOptions:
        return self._cluster.options

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    @property
    def cluster(self) -> str | None:
        """The id of the cluster, as the last answer about topics had it."""
        return self._cluster.id

    def topics(self) -> dict[str, TopicInfo]:
        """Every topic, the internal ones too."""
        return self._cluster.topics()

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """These topics as they are now; UnknownTopicError names the missing ones. Never makes a topic."""
        return self._cluster.describe(list(dict.fromkeys(names)))

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool | None = None, partial: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """Per partition the offset at a time in ms, or at EARLIEST, LATEST or MAX_TIMESTAMP.

        `partial`: those without a leader are left out, where others have one.
        """
        return list_offsets(self._cluster, wanted, committed=self._committed(committed), partial=partial)

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Per partition the largest leader epoch at or below the one given, and the offset behind its last record."""
        return epoch_ends(self._cluster, wanted)

    def expect(self, topic_id: uuid.UUID, epochs: Mapping[int, int]) -> None:
        """Partitions have leaders of these epochs or later ones: who says otherwise was replaced, and is not asked."""
        self._cluster.expect(topic_id, epochs)

    def hear_all(self, topics: Iterable[str]) -> Heard:
        """Before something is believed that one broker alone says: `expect` of what any of them has heard."""
        return self._cluster.hear_all(list(dict.fromkeys(topics)))

    def leader_epoch(self, at: TopicPartition) -> int:
        """Of the leader that is asked; -1 where brokers do not tell it."""
        return self._cluster.leader_epoch(at)

    def settled_end(self, at: TopicPartition) -> int:
        """The end of a log, once everything is committed that is in it now."""
        return settled_end(self._cluster, at)

    def fetch(
        self,
        at: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Iterator[Fetched]:
        """Batches from the one that holds `start` until `end` (exclusive) is reached.

        The first may begin before `start`, the last may end behind `end`. Beyond the end of the log it waits for
        more, `default.api.timeout.ms` from one answer with records to the next. With `topic_id`, a topic of the same
        name made anew is refused (TopicRecreatedError), as it is in any case while the iteration lasts.
        """
        return fetch(self._cluster, at, start, end, committed=self._committed(committed), topic_id=topic_id)

    def serves(self, at: TopicPartition, offset: int) -> bool:
        """Whether a reader who stands there may go on: the first record he gets may have a larger offset."""
        return serves(self._cluster, at, offset)

    def retirements(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
        """Where partitions ended for readers that were retired, also of removed ones; left out: nobody knows."""
        return retirements(self._cluster, wanted)

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """What deletes records of these topics, as {"delete"} or {"compact", "delete"}; left out: nobody tells."""
        return cleanup_policies(self._cluster, names)

    def produce(self, at: TopicPartition, batch: Buffer, *, acks: int = -1) -> int:
        """Write one whole batch and wait: the offset of its first record. Stored once, however often it is sent.

        acks=0 does not wait: -1.
        """
        if acks == 0:
            produce_unanswered(self._cluster, at, batch)
            return -1
        producer = self._producers.get(acks)
        if producer is None or producer.failure is not None:
            producer = self._producers[acks] = RawProducer(self._cluster, acks)
        delivery = producer.send(at, batch)
        producer.flush()
        return -1 if delivery.offset is None else delivery.offset

    def producer(self, identity: Producer | None = None) -> RawProducer:
        """For many batches: pipelined, with an identity of its own unless one is given.

        Of several under one identity a partition takes each sequence once: see `next_sequence`, `RawProducer.begin`.
        """
        return RawProducer(self._cluster, identity=identity)

    def next_sequence(self, at: TopicPartition, producer_id: int) -> int:
        """Which one the leader wants of that producer; 0 where it knows nothing of it."""
        return next_sequence(self._cluster, at, producer_id)

    def _committed(self, given: bool | None) -> bool:
        return self.options.committed if given is None else given
