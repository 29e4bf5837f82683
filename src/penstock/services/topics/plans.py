"""What a topic that is asked for would look like, or why it cannot be: decisions only, nothing is written.

The order of the checks is Kafka's, so that a request with several faults is answered with the same one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.config.broker import BrokerConfig
from penstock.config.settings import ConfigError
from penstock.config.topic import TopicConfig
from penstock.controller.image_queries import places_of
from penstock.controller.placement import BrokerLocations, alternating, check_replicas, place
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.maintenance.archive_progress import refuse_progress_of_new_topic
from penstock.services.retiring import check_growth, refuse_retirement_of_new_topic
from penstock.services.topics.names import METADATA_LOG, Collisions, check_topic_name

DEFAULT = -1
# As in Kafka: one request must not keep the metadata store busy for long.
PARTITIONS_PER_REQUEST_MAX = 10_000


@dataclass(frozen=True, slots=True)
class WantedTopic:
    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    # (partition, replicas), given by hand; then the two numbers above must be left to default.
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: tuple[PartitionState, ...]
    config: TopicConfig

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class TopicPlanner:
    """Plans the topics of one request against one state of the cluster."""

    def __init__(self, image: ClusterImage, config: BrokerConfig, brokers: Sequence[int]) -> None:
        self._image = image
        self._places = places_of(image)
        self._config = config
        self._brokers = brokers
        self._collisions = Collisions(image.topics)
        # Most topics of a request are configured alike.
        self._configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        self._planned = 0

    def plan(self, wanted: WantedTopic) -> TopicPlan:
        name = wanted.name
        if name == METADATA_LOG:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_LOG} is prohibited."
            )
        check_topic_name(name)
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        self._collisions.check(name)
        config = self._resolve(wanted.configs)
        replicas = self._assigned(wanted) if wanted.assignments else self._placed(wanted)
        self._collisions.add(name)
        self._planned += 1
        return TopicPlan(name, led_by_first(replicas), config)

    def _resolve(self, configs: Sequence[tuple[str, str | None]]) -> TopicConfig:
        overrides: dict[str, str] = {}
        for name, value in configs:
            if value is None:
                raise ConfigError(f"Null value not supported for topic configs: {name}")
            overrides[name] = value
        key = tuple(sorted(overrides.items()))
        resolved = self._configs.get(key)
        if resolved is None:
            resolved = TopicConfig.resolve(overrides, self._config)
            refuse_progress_of_new_topic(resolved.archive_progress)
            refuse_retirement_of_new_topic(resolved)
            self._configs[key] = resolved
        return resolved

    def _assigned(self, wanted: WantedTopic) -> list[tuple[int, ...]]:
        for given, what in (
            (wanted.replication_factor, "replication factor"),
            (wanted.partitions, "numPartitions"),
        ):
            if given != DEFAULT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        assigned: dict[int, tuple[int, ...]] = {}
        replication_factor = None
        for partition, replicas in wanted.assignments:
            if partition in assigned:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {partition}",
                )
            check_replicas(replicas, self._brokers, replication_factor)
            replication_factor = len(replicas)
            assigned[partition] = tuple(replicas)
        if any(partition not in assigned for partition in range(len(assigned))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [assigned[partition] for partition in range(len(assigned))]

    def _placed(self, wanted: WantedTopic) -> list[tuple[int, ...]]:
        replication_factor, partitions = wanted.replication_factor, wanted.partitions
        if replication_factor == 0 or replication_factor < DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if partitions == 0 or partitions < DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if replication_factor == DEFAULT:
            replication_factor = self._config.default_replication_factor
        if partitions == DEFAULT:
            partitions = self._config.num_partitions
        # Topics with one partition must not all be led by the first broker.
        start = len(self._image.topics) + self._planned
        return place(partitions, replication_factor, self._brokers, start=start, places=self._places)


def check_partition_total(topics: Sequence[WantedTopic], config: BrokerConfig) -> None:
    total = 0
    for wanted in topics:
        if wanted.assignments:
            total += len(wanted.assignments)
        elif wanted.partitions == DEFAULT:
            total += config.num_partitions
        else:
            total += max(wanted.partitions, 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise _too_many()


def plan_added_partitions(
    topic: Topic,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[int],
    places: BrokerLocations | None = None,
) -> tuple[PartitionState, ...]:
    """The partitions that bring a topic to `count`; with as many replicas as it has, placed or given by hand."""
    check_growth(topic)
    current = len(topic.partitions)
    if count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {count} would not be an increase.",
        )
    added = count - current
    replication_factor = len(topic.partitions[0].target)
    if assignments is None:
        if added > PARTITIONS_PER_REQUEST_MAX:
            raise _too_many()
        # Go on where the topic's own round stands, so that leaders stay spread.
        first, ring = topic.partitions[0].replicas[0], alternating(brokers, places or {})
        start = (ring.index(first) if first in ring else 0) + current
        return led_by_first(place(added, replication_factor, brokers, start=start, places=places))
    if len(assignments) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified.",
        )
    for replicas in assignments:
        check_replicas(replicas, brokers, replication_factor)
    return led_by_first([tuple(replicas) for replicas in assignments])


def led_by_first(replicas: Sequence[tuple[int, ...]]) -> tuple[PartitionState, ...]:
    """A new partition is empty everywhere, so that all its replicas are in sync and the preferred one leads."""
    # One object per assignment, not per partition: on one node there is a single one for thousands.
    states: Mapping[tuple[int, ...], PartitionState] = {
        each: PartitionState(replicas=each, isr=each, leader=each[0]) for each in dict.fromkeys(replicas)
    }
    return tuple(states[each] for each in replicas)


def _too_many() -> ApiError:
    return ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
