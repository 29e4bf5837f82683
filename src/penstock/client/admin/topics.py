"""Topics, administered, over librdkafka's admin client."""

import base64
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.client.connect import REQUEST_SECONDS, handle_settings, reach
from penstock.client.errors import ClientError, kafka_errors

_T = TypeVar("_T")
_BROKER_DEFAULT = -1
RETIRE_TO = "penstock.retire.to"
_NEWS_UNDER_WAY = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
_RETRY_SECONDS = 0.1
# A frozen broker is not waited for at a start.
_MOST_SECONDS = 1.0


def topic_id_text(topic_id: Uuid) -> str:
    """As Kafka prints it, and as it may stand in a setting: librdkafka's own text has `+` and `/` in it."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def uuid_text(topic_id: uuid.UUID) -> str:
    """The same for an id as the raw client tells it."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _ask_all(bootstrap: str, name: str, answer: "Future[str | None]") -> None:
    try:
        from penstock.client.raw import RawClient  # noqa: PLC0415 - it takes a while to load, and hardly anybody asks

        with RawClient(bootstrap) as client:
            found = client.hear_all([name]).by_most.get(name)
        answer.set_result(None if found is None else uuid_text(found))
    except Exception as error:  # whoever waits for the answer is told
        answer.set_exception(error)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    earliest: int | None = None
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    partitions: tuple[PartitionInfo, ...]
    id: str | None = None
    configs: Mapping[str, str] | None = None  # what was set on the topic itself
    internal: bool = False  # the broker keeps its own state in it

    @property
    def replicas(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    @property
    def staying(self) -> int:
        """How many partitions are not being retired."""
        wanted = (self.configs or {}).get(RETIRE_TO)
        return len(self.partitions) if wanted is None else min(int(wanted), len(self.partitions))


def _partition(found: Any, earliest: int | None = None, latest: int | None = None) -> PartitionInfo:
    return PartitionInfo(
        found.id,
        found.leader.id if found.leader is not None else None,
        tuple(node.id for node in found.replicas),
        tuple(node.id for node in found.isr),
        earliest,
        latest,
    )


class TopicAdmin:
    """One connection for a few questions; librdkafka keeps it alive between them."""

    def __init__(self, bootstrap: str, *, debug: bool = False) -> None:
        reach(bootstrap)
        self._bootstrap = bootstrap
        self._client = AdminClient(handle_settings(bootstrap, debug=debug))

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """What is not given is left to the broker. With `exist_ok` a topic that is there stays as it is."""
        topic = NewTopic(
            name,
            num_partitions=_BROKER_DEFAULT if partitions is None else partitions,
            replication_factor=_BROKER_DEFAULT if replicas is None else replicas,
            config=dict(configs or {}),
        )
        try:
            self._wait(self._client.create_topics([topic], request_timeout=REQUEST_SECONDS)[name], name)
        except ClientError as error:
            if not exist_ok or error.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, the broker's own among them."""
        with kafka_errors(self._bootstrap, "the topics"):
            names = sorted(self._client.list_topics(timeout=REQUEST_SECONDS).topics)
        if not names:
            return []
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
        found = []
        for name in names:
            try:
                topic = self._wait(futures[name], name)
            except ClientError as error:
                if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:  # deleted in this moment
                    raise
                continue
            partitions = tuple(_partition(p) for p in sorted(topic.partitions, key=lambda p: p.id))
            found.append(
                TopicInfo(name, partitions, topic_id_text(topic.topic_id), internal=topic.is_internal)
            )
        return found

    def partition_indexes(self, name: str) -> list[int]:
        return [partition.id for partition in self._description(name).partitions]

    def topic_id(self, name: str) -> str:
        return topic_id_text(self._description(name).topic_id)

    def topic_id_by_most(self, name: str) -> str:
        """As most brokers tell it, if they do so soon; any broker may hear late of a topic that was made again."""
        by_most = self.asked_id_by_most(name)
        told = self.topic_id(name)
        with suppress(Exception):
            return by_most.result(_MOST_SECONDS) or told
        return told

    def describe(self, name: str) -> TopicInfo:
        """Everything about one topic: where its partitions are, what they hold, what was configured."""
        found = self._description(name)
        indexes = [partition.id for partition in found.partitions]
        earliest = self.earliest(name, indexes)
        latest = self.latest(name, indexes)
        partitions = tuple(
            _partition(p, earliest.get(p.id), latest.get(p.id))
            for p in sorted(found.partitions, key=lambda partition: partition.id)
        )
        return TopicInfo(
            name, partitions, topic_id_text(found.topic_id), self.own_configs(name), found.is_internal
        )

    def describe_new(self, name: str) -> TopicInfo:
        """Of a topic that was just made: brokers hear of it one after the other, and any of them may be asked."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return self.describe(name)
            except ClientError as error:
                if error.code not in _NEWS_UNDER_WAY or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _description(self, name: str) -> Any:
        return self._wait(self.asked_description(name), name)

    def asked_description(self, name: str) -> "Future[Any]":
        """librdkafka's own, for those who cannot wait for it."""
        wanted = TopicCollection([name])
        return self._client.describe_topics(wanted, request_timeout=REQUEST_SECONDS)[name]

    def asked_id_by_most(self, name: str) -> "Future[str | None]":
        """The id of the topic that most brokers tell; None: there is none. For those who cannot wait for it."""
        answer: Future[str | None] = Future()
        Thread(target=_ask_all, args=(self._bootstrap, name, answer), daemon=True).start()
        return answer

    def earliest(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        return self._offsets(name, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest(self, name: str, partitions: Iterable[int], *, committed: bool = False) -> dict[int, int]:
        """The end of each partition; of what is `committed`, where its earliest open transaction begins."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(name, partitions, spec, committed=committed)

    def since(self, name: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time in each partition; -1 where there is none."""
        return self._offsets(name, partitions, OffsetSpec.for_timestamp(timestamp_ms))

    def _offsets(
        self, name: str, partitions: Iterable[int], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[int, int]:
        futures = self._ask_offsets(((name, index) for index in partitions), spec, committed=committed)
        return {index: self._wait(future, name).offset for (_, index), future in futures.items()}

    def _ask_offsets(
        self, places: Iterable[tuple[str, int]], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[tuple[str, int], Any]:
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._client.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_SECONDS)
        return {(at.topic, at.partition): future for at, future in futures.items()}

    def live_brokers(self) -> list[int]:
        with kafka_errors(self._bootstrap, "the brokers"):
            return sorted(self._client.list_topics(timeout=REQUEST_SECONDS).brokers)

    def setting_of_topic(self, name: str, setting: str) -> str:
        """In force, wherever it was set."""
        return self.settings_of_topic(name)[setting]

    def settings_of_topic(self, name: str) -> dict[str, str]:
        """All that are in force."""
        return {key: str(entry.value) for key, entry in self._config_entries(name).items()}

    def _config_entries(self, name: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._client.describe_configs([resource], request_timeout=REQUEST_SECONDS)
        return self._wait(next(iter(futures.values())), name)

    def own_configs(self, name: str) -> dict[str, str]:
        """Those that were set on the topic itself."""
        entries = self._config_entries(name)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: entry.value for key, entry in sorted(entries.items()) if entry.source == own}

    def add_partitions(self, name: str, total: int) -> None:
        futures = self._client.create_partitions(
            [NewPartitions(name, total)], request_timeout=REQUEST_SECONDS
        )
        self._wait(futures[name], name)

    def retire_partitions(self, name: str, staying: int) -> None:
        """Let all but the first partitions go, once nobody has anything left to read or to write there."""
        self.alter_configs(name, {RETIRE_TO: str(staying)})

    def alter_configs(self, name: str, changed: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in changed.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removed]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        futures = self._client.incremental_alter_configs([resource], request_timeout=REQUEST_SECONDS)
        self._wait(next(iter(futures.values())), name)

    def delete(self, name: str) -> None:
        self._wait(self._client.delete_topics([name], request_timeout=REQUEST_SECONDS)[name], name)

    def _wait(self, future: "Future[_T]", subject: str) -> _T:
        with kafka_errors(self._bootstrap, subject):
            return future.result()

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies before an offset in each partition (-1: everything there is). Gives the new beginnings."""
        asked = [TopicPartition(name, index, offset) for index, offset in before.items()]
        futures = self._client.delete_records(asked, request_timeout=REQUEST_SECONDS)
        return {at.partition: self._wait(future, name).low_watermark for at, future in futures.items()}
