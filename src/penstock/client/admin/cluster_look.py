"""One look at a cluster: who is there, where every replica is and how large, what moves."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas, hidden
from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError, UnsupportedError
from penstock.client.raw.link import Address, Link
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.kafka.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.kafka.generated.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.kafka.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.kafka.generated.metadata import MetadataRequest, MetadataResponse

_BROKER_RESOURCE = 4
_DRAINING = "penstock.broker.draining"
_MACHINE = "penstock.host.label"
_REPLICAS_TO = "penstock.replicas.to"
_TOPIC_RESOURCE = 2
# Before it the request has no way to say that a topic shall not be made.
_METADATA_VERSION_MIN = 4
_FENCED_SINCE = 2


class _Own(NamedTuple):
    """What a broker says of itself."""

    draining: bool = False
    machine: str | None = None
    sizes: dict[TopicPartition, int] | None = None
    free_bytes: int | None = None


def look(cluster: Cluster, budget: RetryBudget) -> ClusterInfo:
    """RawError when it cannot be had, or not now."""
    link = cluster.any_link(budget)
    told = _described(link)
    partitions, trouble = _partitions(link)
    live = [broker for broker in told.brokers if not broker.is_fenced]
    owns = _ask_all(cluster, live, budget)
    loads = Counter(replica for each in partitions.values() for replica in each.replicas)
    leads = Counter(each.leader for each in partitions.values())
    for number, own in owns.items():
        loads[number] += len(hidden(partitions, () if own is None else own.sizes or ()))
    known = {broker_info.broker_id: broker_info for broker_info in told.brokers}
    # Unregistered, and still counted on by partitions that nobody can copy.
    for gone in loads.keys() - known.keys():
        known[gone] = DescribeClusterBroker(broker_id=gone, port=-1, is_fenced=True)
    brokers = {}
    for number, broker_info in sorted(known.items()):
        own = owns.get(number)
        sizes = None if own is None else own.sizes
        brokers[number] = BrokerInfo(
            id=number,
            host=broker_info.host,
            port=broker_info.port,
            rack=broker_info.rack,
            machine=None if own is None else own.machine,
            state=_state(broker_info, own, loads[number]),
            controller=number == told.controller_id,
            replicas=loads[number],
            leaders=leads[number],
            size_bytes=None if sizes is None else sum(sizes.values()),
            free_bytes=None if own is None else own.free_bytes,
        )
    sizes_by_broker = {number: own.sizes for number, own in owns.items() if own is not None and own.sizes}
    wanted = _wanted_replicas(link, INTERNAL_TOPICS & {place.topic for place in partitions})
    return ClusterInfo(told.cluster_id, brokers, partitions, sizes_by_broker, trouble, wanted)


def _wanted_replicas(link: Link, topics: Iterable[str]) -> dict[str, int]:
    """Of those that were made while brokers were missing; only internal ones are, without refusing."""
    resources = [
        DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[_REPLICAS_TO]
        )
        for name in sorted(topics)
    ]
    if not resources:
        return {}
    version = link.version(ApiKey.DESCRIBE_CONFIGS)
    answer = link.call(ApiKey.DESCRIBE_CONFIGS, version, DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: int(entry.value)
        for result in answer.results
        for entry in result.configs
        if entry.value
    }


def _state(told: DescribeClusterBroker, own: _Own | None, replicas: int) -> BrokerState:
    if told.is_fenced:
        return BrokerState.DEAD
    if own is None:
        return BrokerState.SILENT
    if own.draining:
        # Without the list of its logs nobody knows what metadata hides.
        return BrokerState.DRAINING if replicas or own.sizes is None else BrokerState.DRAINED
    return BrokerState.IN_SERVICE


def _described(link: Link) -> DescribeClusterResponse:
    version = link.version(ApiKey.DESCRIBE_CLUSTER)
    request = DescribeClusterRequest(include_fenced_brokers=version >= _FENCED_SINCE)
    answer: DescribeClusterResponse = link.call(ApiKey.DESCRIBE_CLUSTER, version, request)
    if answer.error_code:
        raise BrokerError(answer.error_code, "describing the cluster", answer.error_message)
    return answer


def _partitions(link: Link) -> tuple[dict[TopicPartition, Replicas], str]:
    version = link.version(ApiKey.METADATA, at_least=_METADATA_VERSION_MIN)
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    metadata: MetadataResponse = link.call(ApiKey.METADATA, version, request)
    moves, trouble = _moves(link)
    found = {}
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            place = TopicPartition(topic.name or "", partition.partition_index)
            adding, removing = moves.get(place, ((), ()))
            found[place] = Replicas(
                partition.leader_id,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                adding,
                removing,
            )
    return found, trouble


def _moves(link: Link) -> tuple[dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]], str]:
    """(adding, removing) of what moves, and why nothing more is begun."""
    version = link.version(ApiKey.LIST_PARTITION_REASSIGNMENTS)
    request = ListPartitionReassignmentsRequest(topics=None)
    answer: ListPartitionReassignmentsResponse = link.call(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, version, request
    )
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        raise ConnectionLostError("there is no controller now")
    if answer.error_code:
        raise BrokerError(answer.error_code, "listing reassignments", answer.error_message)
    moves = {
        TopicPartition(topic.name, partition.partition_index): (
            tuple(partition.adding_replicas),
            tuple(partition.removing_replicas),
        )
        for topic in answer.topics
        for partition in topic.partitions
    }
    return moves, answer.error_message or ""


def _ask_all(
    cluster: Cluster, brokers: Iterable[DescribeClusterBroker], budget: RetryBudget
) -> dict[int, _Own | None]:
    """What each says of itself; None of one that does not answer."""
    owns: dict[int, _Own | None] = {}
    for broker in brokers:
        try:
            owns[broker.broker_id] = _ask_own(cluster, broker.broker_id, (broker.host, broker.port), budget)
        except (RawError, UnsupportedError):
            owns[broker.broker_id] = None
    return owns


def _ask_own(cluster: Cluster, broker: int, address: Address, budget: RetryBudget) -> _Own:
    link = cluster.link(address, budget)
    resource = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE,
        resource_name=str(broker),
        configuration_keys=[_DRAINING, _MACHINE],
    )
    dirs = link.send(
        ApiKey.DESCRIBE_LOG_DIRS,
        link.version(ApiKey.DESCRIBE_LOG_DIRS),
        DescribeLogDirsRequest(topics=None),
    )
    configs = link.call(
        ApiKey.DESCRIBE_CONFIGS,
        link.version(ApiKey.DESCRIBE_CONFIGS),
        DescribeConfigsRequest(resources=[resource]),
    )
    settings = {entry.name: entry.value for result in configs.results for entry in result.configs}
    sizes: dict[TopicPartition, int] = {}
    free = 0
    failed = False
    for result in link.response(dirs).results:
        failed |= bool(result.error_code)
        free += max(result.usable_bytes, 0)
        for topic in result.topics:
            for partition in topic.partitions:
                sizes[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
    return _Own(
        draining=(settings.get(_DRAINING) or "").lower() == "true",
        machine=settings.get(_MACHINE) or None,
        sizes=None if failed else sizes,
        free_bytes=None if failed else free,
    )
