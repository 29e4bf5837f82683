"""What a broker tells Prometheus of the cluster: its replicas, who is controller, and the groups it coordinates.

As in Kafka, each broker speaks for what it leads, and only the active controller for partitions that nobody leads: so
sums over all brokers are right.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.replication.partition import Partition
from penstock.replication.retirement import is_retired, left_to_move
from penstock.storage.producer_copy import ProducerCopy

if TYPE_CHECKING:
    from penstock.server.broker import Broker

_LATE_MS = 5 * 60 * 1000


class Replication(NamedTuple):
    """Of the partitions that a broker leads."""

    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    reassigning: int = 0
    lag_records_max: int = 0


def replication(partitions: list[Partition]) -> Replication:
    leaders = under_replicated = under_min_isr = reassigning = lag_records_max = 0
    for partition in partitions:
        leading = partition.leading
        leaders += partition.is_leader
        if leading is None:
            continue
        state, end = leading.state, partition.log.end_offset
        # While replicas move, those that only come are not missed yet.
        under_replicated += len(state.isr) < state.assured
        under_min_isr += leading.is_short
        reassigning += bool(state.adding or state.removing)
        for follower in list(leading.progress.values()):
            lag_records_max = max(lag_records_max, end - max(follower.end, 0))
    return Replication(leaders, under_replicated, under_min_isr, reassigning, lag_records_max)


class Unsettled(NamedTuple):
    """What transactions keep from readers, in the partitions that a broker leads."""

    lag_records_max: int = 0
    late: int = 0  # partitions


def unsettled(partitions: list[Partition], timed_out_ms: int) -> Unsettled:
    """As in Kafka a transaction is late, and may hang, five minutes after any could have been open."""
    lag_records_max = late = 0
    for partition in partitions:
        producers = partition.log.producers
        if not partition.is_leader or not producers.unstable:
            continue
        limits = partition.limits
        lag_records_max = max(lag_records_max, limits.high_watermark.offset - limits.last_stable.offset)
        late += any(
            producers.transactions.first_offset(producer_id) >= 0
            and (known := producers.last_written(producer_id)) is not None
            and ProducerCopy.of(known).last_timestamp < timed_out_ms - _LATE_MS
            for producer_id in list(producers.unstable.values())
        )
    return Unsettled(lag_records_max, late)


class ClusterCollector:
    """Asked from a thread, as `BrokerCollector` is."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        yield from self._replication()
        yield from self._relays()
        yield from self._controller()
        yield from self._groups()
        yield from self._transactions()

    def _replication(self) -> Iterator[Metric]:
        partitions = list(self._broker.table.partitions())
        found = replication(partitions)
        for name, text, value in (
            ("partitions", "Replicas on this broker.", len(partitions)),
            ("led_partitions", "Partitions that this broker leads.", found.leaders),
            ("under_replicated_partitions", "Led here, with replicas out of sync.", found.under_replicated),
            (
                "under_min_isr_partitions",
                "Led here, with too few replicas in sync for acks=all.",
                found.under_min_isr,
            ),
            ("reassigning_partitions", "Led here, with replicas that come or go.", found.reassigning),
            (
                "max_follower_lag_records",
                "The most records that a follower of a partition led here still lacks.",
                found.lag_records_max,
            ),
        ):
            yield GaugeMetricFamily(f"penstock_{name}", text, value=value)
        keeper = self._broker.cluster.keeper
        yield CounterMetricFamily(
            "penstock_isr_shrinks",
            "Times that in-sync replicas of a partition led here became fewer.",
            keeper.shrinks,
        )
        yield CounterMetricFamily(
            "penstock_isr_expands",
            "Times that in-sync replicas of a partition led here became more.",
            keeper.expands,
        )

    def _relays(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "penstock_relay_lag_records",
            "Committed records of a retired partition led here that are still to be moved to another.",
            labels=["topic", "partition"],
        )
        retired = 0
        for partition in list(self._broker.table.partitions()):
            if partition.is_leader and is_retired(partition):
                lag.add_metric([partition.topic, str(partition.index)], left_to_move(partition))
                retired += 1
        yield lag
        yield GaugeMetricFamily(
            "penstock_retired_partitions", "Led here, and no longer read from as they grow.", value=retired
        )
        moved = self._broker.cluster.relays.moved
        yield CounterMetricFamily(
            "penstock_relay_moved_records", "Records of retired partitions moved from here.", moved.records
        )
        yield CounterMetricFamily(
            "penstock_relay_moved_bytes", "Bytes of retired partitions moved from here.", moved.size_bytes
        )

    def _controller(self) -> Iterator[Metric]:
        image = self._broker.metadata.image
        is_active = image.controller == self._broker.services.node.id and image.controller in image.brokers
        offline = 0
        if is_active:
            live = frozenset(image.brokers)
            topics = image.stored_topics()
            offline = sum(state.leader not in live for topic in topics for state in topic.partitions)
        yield GaugeMetricFamily(
            "penstock_active_controller", "1 on the broker that is controller.", value=is_active
        )
        yield GaugeMetricFamily(
            "penstock_offline_partitions",
            "Partitions of the cluster that nobody leads, told by the controller.",
            value=offline,
        )

    def _groups(self) -> Iterator[Metric]:
        coordinator = self._broker.services.coordinator
        groups = GaugeMetricFamily(
            "penstock_groups", "Consumer groups that this broker coordinates.", labels=["state"]
        )
        for state, count in self._broker.services.group_admin.states().items():
            groups.add_metric([state], count)
        yield groups
        yield GaugeMetricFamily(
            "penstock_groups_unavailable_partitions",
            "Partitions of __consumer_offsets led here whose groups are being loaded, or cannot be.",
            value=coordinator.unavailable,
        )
        yield CounterMetricFamily(
            "penstock_groups_damaged_records",
            "Records of groups that could not be read back, and were left out.",
            coordinator.damaged_records,
        )
        yield CounterMetricFamily(
            "penstock_offset_commits",
            "Offsets that groups committed.",
            self._broker.services.group_offsets.commits,
        )

    def _transactions(self) -> Iterator[Metric]:
        services = self._broker.services
        now_ms, under_way = services.clock.now_ms(), services.transactions.under_way()
        ids = GaugeMetricFamily(
            "penstock_transactional_ids",
            "Transactional ids that this broker coordinates, by the state of their transaction.",
            labels=["state"],
        )
        for state, count in under_way.states.items():
            ids.add_metric([state], count)
        yield ids
        oldest_ms = under_way.oldest_started_ms
        yield GaugeMetricFamily(
            "penstock_oldest_transaction_seconds",
            "How long the oldest transaction that this broker coordinates is open; 0 where none is.",
            value=0 if oldest_ms is None else max(now_ms - oldest_ms, 0) / 1000,
        )
        sender = services.marker_sender
        yield CounterMetricFamily(
            "penstock_transactions_committed",
            "Transactions that were committed in all their partitions.",
            sender.committed,
        )
        yield CounterMetricFamily(
            "penstock_transactions_aborted",
            "Transactions that were aborted in all their partitions.",
            sender.aborted,
        )
        verifications = HistogramMetricFamily(
            "penstock_transaction_verification_seconds",
            "How long a transaction's first batch in a partition led here waits for its coordinator.",
        )
        asked = services.transactions.verifications
        verifications.add_metric([], asked.cumulative(), asked.total_seconds)
        yield verifications
        found = unsettled(
            list(self._broker.table.partitions()), now_ms - services.config.now.transaction_max_timeout_ms
        )
        yield GaugeMetricFamily(
            "penstock_last_stable_offset_lag_records",
            "The most committed offsets of a partition led here that wait for the end of a transaction.",
            value=found.lag_records_max,
        )
        yield GaugeMetricFamily(
            "penstock_late_transaction_partitions",
            "Led here, with a transaction that should have been aborted by now.",
            value=found.late,
        )
