"""Reading a topic without a group: chosen partitions, from a place, up to a place or for ever."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.connect import handle_settings
from penstock.client.console.topic_watch import TopicWatch
from penstock.client.errors import ClientError, UnreachableError, explained, kafka_errors, unreachable

# How many messages are taken at once: enough to keep Python out of the way of a fast broker.
_TAKEN_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where reading begins in every partition; one of these, or the end when none is given."""

    beginning: bool = False
    offset: int | None = None  # negative counts back from the end
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """What is read of one partition."""

    start: int  # where fetching begins: an offset that exists, or the end
    first: int  # the first offset wanted; later than `start` when the log has not got so far
    end: int  # the end when reading began


def ranges(
    admin: Admin,
    topic: str,
    partitions: Sequence[int] | None,
    place: StartPosition,
    *,
    committed: bool = False,
) -> dict[int, Range]:
    """The place found in every chosen partition; its end is where reading what is `committed` ends."""
    known = admin.partition_indexes(topic)
    chosen = sorted(set(partitions)) if partitions else known
    unknown = [index for index in chosen if index not in known]
    if unknown:
        last = max(known, default=-1)
        raise ClientError(f"{topic} has no partition {unknown[0]}: choose from 0 to {last} with --partition")
    earliest = admin.earliest(topic, chosen)
    latest = admin.latest(topic, chosen, committed=committed)
    firsts = dict(latest)
    if place.beginning:
        firsts = dict(earliest)
    elif place.since_ms is not None:
        found = admin.since(topic, chosen, place.since_ms)
        firsts = {index: offset if offset >= 0 else latest[index] for index, offset in found.items()}
    elif place.offset is not None:
        count = place.offset
        firsts = {index: count if count >= 0 else max(0, end + count) for index, end in latest.items()}
    return {
        index: Range(min(max(firsts[index], earliest[index]), latest[index]), firsts[index], latest[index])
        for index in chosen
    }


class ConsoleReader:
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        wanted: Mapping[int, Range],
        *,
        isolation: str = "read_uncommitted",
        follow: bool,
        debug: bool = False,
        watch: TopicWatch | None = None,
    ) -> None:
        """With a `watch`, `read` raises TopicRemadeError soon after the topic was made again."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._watch = watch
        self._follow = follow
        self._first = {index: part.first for index, part in wanted.items()}
        # Without following, a partition is done at the end it had when reading began.
        self._open = {index: part.end for index, part in wanted.items() if follow or part.start < part.end}
        self.broker_lost = False
        self._consumer = Consumer(
            handle_settings(
                bootstrap,
                debug=debug,
                **{
                    "group.id": "penstock-console",  # librdkafka wants one; it is never joined or committed to
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": not follow,
                    "isolation.level": isolation,
                    # Only when retention overtakes the reader: the start was found to exist.
                    "auto.offset.reset": "earliest",
                    "error_cb": self._noticed,
                },
            )
        )
        if self._open:
            starts = [TopicPartition(topic, index, wanted[index].start) for index in self._open]
            self._consumer.assign(starts)

    def _noticed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's public name for it
            self.broker_lost = True

    @property
    def done(self) -> bool:
        return not self._open

    def read(self, timeout: float) -> Iterator[Message]:
        """What has arrived, waiting up to `timeout` seconds for the first message."""
        if self._watch is not None:
            self._watch.look()
        with kafka_errors(self._bootstrap, self._topic):
            first = self._consumer.poll(timeout)
        if first is None:
            if self.broker_lost and not self._follow:
                raise unreachable(self._bootstrap)
            return
        self.broker_lost = False
        for message in (first, *self._consumer.consume(_TAKEN_AT_ONCE, 0)):
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if error is not None:
                self._failed(error, partition)
            elif partition in self._open and offset is not None:
                if not self._follow and offset >= self._open[partition]:
                    del self._open[partition]
                    continue
                if offset >= self._first[partition]:
                    yield message
                if not self._follow and offset + 1 >= self._open[partition]:
                    del self._open[partition]

    def _failed(self, error: KafkaError, partition: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's public name for it
            if partition is not None:
                self._open.pop(partition, None)
            return
        said = explained(error, bootstrap=self._bootstrap, subject=self._topic)
        if isinstance(said, UnreachableError) and self._follow:
            self.broker_lost = True
            return
        raise said

    def close(self) -> None:
        with kafka_errors(self._bootstrap, self._topic):
            self._consumer.close()
