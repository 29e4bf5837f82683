"""Brokers, administered: what librdkafka's admin client has no call for, with Kafka's own requests.

    with ClusterAdmin("127.0.0.1:9092") as admin:
        admin.look().under_replicated
        admin.set_draining(3, True)

Requests that only the controller carries out may be sent to any broker; settings of a broker are asked of itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock.client.admin.cluster_info import ClusterInfo
from penstock.client.admin.cluster_look import look
from penstock.client.admin.retired_look import Retired, look_at_retired
from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.link import Link
from penstock.client.raw.options import RawOptions
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.kafka.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.kafka.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.kafka.generated.unregister_broker import UnregisterBrokerRequest

DRAINING: Final = "penstock.broker.draining"
_BROKER_RESOURCE = 4
_SET, _DELETE = 0, 1
_PREFERRED = 0
# Long enough for a busy cluster, short enough for a person who waits.
_OPTIONS = RawOptions(connect_timeout_ms=3_000, request_timeout_ms=20_000, api_timeout_ms=30_000)

_T = TypeVar("_T")


class ClusterAdmin:
    """Blocking, for one thread; raises `RawError` with one line that says what to do."""

    def __init__(self, bootstrap: str, options: RawOptions = _OPTIONS) -> None:
        self._cluster = Cluster(bootstrap, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def look(self) -> ClusterInfo:
        """The whole cluster as it is now."""
        budget = self._cluster.budget("looking at the cluster")
        return self._tried("looking at the cluster", lambda: look(self._cluster, budget))

    def retired(self, found: ClusterInfo, topic: str, staying: int) -> list[Retired]:
        """The topic's partitions from number `staying` on that somebody leads."""
        what = "looking at retired partitions"
        budget = self._cluster.budget(what)
        return self._tried(what, lambda: look_at_retired(self._cluster, found, topic, staying, budget))

    def set_draining(self, broker: int, address: tuple[str, int], value: bool) -> None:
        """Whether the broker's replicas shall move to others; it must be alive."""
        change = (
            AlterableConfig(name=DRAINING, config_operation=_SET, value="true")
            if value
            else AlterableConfig(name=DRAINING, config_operation=_DELETE, value=None)
        )
        resource = AlterConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(broker), configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = self._call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, address)
        for response in answer.responses:
            _check(response.error_code, f"broker {broker}", response.error_message)

    def forget(self, broker: int) -> None:
        """A broker that is dead will not come back: others get its replicas at once."""
        answer = self._call(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker))
        _check(answer.error_code, f"broker {broker}", answer.error_message)

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
        """Move partitions to these replicas, None takes a move back; returns why not, of those that were refused."""
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, number), target in targets.items():
            replicas = None if target is None else list(target)
            topics.setdefault(topic, []).append(
                ReassignablePartition(partition_index=number, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=each) for name, each in topics.items()]
        )
        answer = self._call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        _check(answer.error_code, "moving replicas", answer.error_message)
        return {
            TopicPartition(topic.name, partition.partition_index): partition.error_message
            or str(partition.error_code)
            for topic in answer.responses
            for partition in topic.partitions
            if partition.error_code
        }

    def elect_preferred(self, places: Iterable[TopicPartition]) -> int:
        """Let first replicas lead; returns how many do now that did not before."""
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        if not topics:
            return 0
        request = ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[TopicPartitions(topic=name, partitions=each) for name, each in topics.items()],
        )
        answer = self._call(ApiKey.ELECT_LEADERS, request)
        _check(answer.error_code, "electing leaders")
        return sum(
            not partition.error_code
            for topic in answer.replica_election_results
            for partition in topic.partition_result
        )

    def _call(self, api_key: ApiKey, request: Any, address: tuple[str, int] | None = None) -> Any:
        what = f"asking for {api_key.name.lower().replace('_', ' ')}"
        budget = self._cluster.budget(what)

        def ask() -> Any:
            link = self._cluster.link(address, budget) if address else self._cluster.any_link(budget)
            return _ask(link, api_key, request)

        return self._tried(what, ask)

    def _tried(self, what: str, ask: Callable[[], _T]) -> _T:
        budget = self._cluster.budget(what)
        while True:
            try:
                return ask()
            except RawError as error:
                budget.pause(error)


def _ask(link: Link, api_key: ApiKey, request: Any) -> Any:
    answer = link.call(api_key, link.version(api_key), request)
    if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        raise ConnectionLostError("there is no controller now")
    return answer


def _check(code: int, subject: str, message: str | None = None) -> None:
    if code:
        raise BrokerError(code, subject, message)
