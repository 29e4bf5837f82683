"""What the broker tells Prometheus: read from its parts when a scrape comes, never pushed by the hot path."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from penstock.core.errors import StorageError
from penstock.core.stats import Durations, Lags
from penstock.server.metrics_cluster import ClusterCollector
from penstock.services.maintenance.archive_progress import archived_end

if TYPE_CHECKING:
    from penstock.server.broker import Broker
from penstock.wire.kafka.messages import api_name


class BrokerCollector:
    """Asked from a thread while the loop works: it copies what it walks over and tolerates being a moment late."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from self._disk()
        yield from self._archive()
        yield from self._cleaner()
        yield from self._waiting()
        yield from self._loop()

    def _loop(self) -> Iterator[Metric]:
        lag = HistogramMetricFamily(
            "penstock_event_loop_lag_seconds", "How late the event loop runs its callbacks."
        )
        _add(lag, [], self._broker.loop_lag.durations)
        occupied = HistogramMetricFamily(
            "penstock_event_loop_occupied_seconds",
            "How late the event loop runs its callbacks because others of them took CPU time.",
        )
        _add(occupied, [], self._broker.loop_lag.occupied)
        yield from (lag, occupied)

    def _requests(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "penstock_request_seconds", "Requests, from the last byte received to the answer.", labels=["api"]
        )
        for key, durations in list(self._broker.connections.requests.by_api.items()):
            _add(family, [_label_of(key)], durations)
        yield family

    def _connections(self) -> Iterator[Metric]:
        connections, produce = self._broker.connections, self._broker.services.writer
        yield _counter("penstock_received_bytes", "Bytes received from clients.", connections.bytes_in)
        yield _counter("penstock_sent_bytes", "Bytes sent to clients.", connections.bytes_out)
        yield _counter("penstock_messages_in", "Records stored.", produce.records)
        yield _counter("penstock_batches_in", "Record batches stored.", produce.batches)
        yield _gauge(
            "penstock_idempotent_producers",
            "Idempotent producers that all partitions here remember.",
            self._broker.table.producers.known,
        )
        yield _gauge("penstock_connections", "Open client connections.", connections.count)
        yield _counter("penstock_connections_refused", "Connections over a limit.", connections.refused)

    def _disk(self) -> Iterator[Metric]:
        offline = sum(partition.log.failed for partition in list(self._broker.table.partitions()))
        yield _gauge(
            "penstock_offline_replicas", "Replicas here that refuse writes after an I/O error.", offline
        )
        # A volume that cannot be asked has no sample: a 0 would be taken for a full one.
        with suppress(StorageError, OSError):
            size_bytes, free_bytes = self._broker.services.disk_usage.space()
            yield _gauge("penstock_disk_size_bytes", "Size of the data directory's volume.", size_bytes)
            yield _gauge("penstock_disk_free_bytes", "What is free of it.", free_bytes)

    def _archive(self) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "penstock_archive_held_bytes",
            "Bytes that retention would delete, but that the archive has not taken yet.",
            labels=["topic"],
        )
        alarm = GaugeMetricFamily(
            "penstock_archive_alarm", "1 above penstock.archive.held.bytes.alarm.", labels=["topic"]
        )
        for name, found in list(self._broker.upkeep.archive.topics.items()):
            held.add_metric([name], found.size_bytes)
            alarm.add_metric([name], found.alarm)
        lag = GaugeMetricFamily(
            "penstock_archive_lag_records",
            "Committed offsets of partitions led here that the archive has not taken yet, where one is required.",
            labels=["topic", "partition"],
        )
        for topic in self._broker.table.stored_topics():
            if topic.config.archive_required:
                # What a leader believes; of the others' logs nothing can be told from here.
                for partition in list(topic.led.values()):
                    # The loop takes old epochs out at this moment: the next scrape has it.
                    with suppress(IndexError):
                        archived = archived_end(topic, partition)
                        behind = partition.high_watermark - max(archived, partition.log.start_offset)
                        lag.add_metric([topic.name, str(partition.index)], max(behind, 0))
        yield from (held, alarm, lag)

    def _cleaner(self) -> Iterator[Metric]:
        cleaner = self._broker.cleaner
        stats = cleaner.stats
        ratio = GaugeMetricFamily(
            "penstock_cleaner_dirty_ratio",
            "The share of what may be compacted of a log that is not compacted yet.",
            labels=["topic", "partition"],
        )
        for (topic, index), value in cleaner.dirty_ratios.items():
            ratio.add_metric([topic, str(index)], value)
        yield ratio
        yield _counter("penstock_cleaner_rounds", "Finished rounds of compaction.", stats.rounds)
        yield _counter("penstock_cleaner_read_bytes", "Bytes that compaction read.", stats.read_bytes)
        yield _counter("penstock_cleaner_written_bytes", "Bytes that compaction wrote.", stats.written_bytes)
        yield _counter(
            "penstock_cleaner_freed_bytes", "Bytes that compaction took out of logs.", stats.freed_bytes
        )
        yield _gauge(
            "penstock_cleaner_last_round_seconds", "How long the last round took.", stats.last_seconds
        )
        yield _gauge(
            "penstock_cleaner_parked_partitions",
            "Partitions that are not compacted any more after an error.",
            len(cleaner.parked),
        )

    def _waiting(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("penstock_purgatory_size", "Requests that wait.", labels=["kind"])
        family.add_metric(["fetch"], self._broker.services.fetch.waiting)
        family.add_metric(
            ["produce"], sum(p.waiting_producers for p in list(self._broker.table.partitions()))
        )
        yield family
        sessions = len(self._broker.fetches.sessions)
        yield _gauge("penstock_fetch_sessions", "Incremental fetch sessions.", sessions)


class BrokerMetrics:
    def __init__(self, broker: "Broker") -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BrokerCollector(broker))
        self._registry.register(ClusterCollector(broker))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """All but what there is of every partition."""
        return generate_latest(self._registry)


def _label_of(key: int) -> str:
    return api_name(key).lower()


def _add(family: HistogramMetricFamily, labels: Iterable[str], durations: Durations | Lags) -> None:
    family.add_metric(list(labels), durations.cumulative(), durations.total_seconds)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
