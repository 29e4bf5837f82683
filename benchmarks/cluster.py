"""Three brokers of each kind, acks=all, three replicas: what replication costs, and how long a killed leader is missed.

Both acknowledge from the page caches of at least two brokers, as they come. Topics have three partitions, one led by
each broker, so that all do the same work. Processor time is that of the brokers and of the process that says who lives.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import statistics
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic
from tools.peers.clusters import BROKERS, ClusterPeer, KafkaCluster, PenstockCluster
from tools.peers.process import HOST

from benchmarks import load, machine, topics
from benchmarks.contenders import Bench, Contender
from benchmarks.measurements import GB, Measurement
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.load import Metrics

SIZE_BYTES = 1000
PRODUCE_BYTES = 1 * GB
CATCH_UP_BYTES = 2 * GB
LATENCY_SECONDS = 10
SHARE_OF_MAXIMUM = 0.3
WAIT_S = 300.0
POLL_S = 0.005
ANY_PARTITION = -1
PENSTOCK = Contender("penstock", "penstock")
KAFKA = Contender("kafka", "kafka")
BOTH = (PENSTOCK, KAFKA)
_KINDS: dict[str, Callable[[Path], ClusterPeer]] = {"penstock": PenstockCluster, "kafka": KafkaCluster}
_SAFE = {"min.insync.replicas": "2"}
# Each contender's rates so far: how much both can take decides how fast latency is looked at.
_rates: dict[str, list[float]] = defaultdict(list)
_names = itertools.count(1)


def cluster_of(bench: Bench, contender: Contender) -> ClusterPeer:
    """Started when first needed, and up until the end of the run."""
    name = f"cluster-{contender.peer}"
    return bench.shared(name, lambda: _KINDS[contender.peer](bench.base_dir / name))


# -- topics --------------------------------------------------------------------------------------------------


def wait_in_sync(cluster: ClusterPeer, topic: str, count: int = len(BROKERS)) -> float:
    """Until all its partitions have so many in sync; the moment at which they had."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def there() -> bool:
        partitions = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions.values()
        return bool(partitions) and all(
            len(partition.isrs) == count and partition.leader > 0 for partition in partitions
        )

    return wait_for(there, f"{count} replicas of {topic} in sync")


def wait_for(condition: Callable[[], bool], what: str) -> float:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {WAIT_S:.0f} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic()


@contextmanager
def fresh_topic(cluster: ClusterPeer, leaders: tuple[int, ...] = BROKERS) -> Iterator[str]:
    """A new topic with a partition for each of these leaders, all of it in sync; deleted afterwards."""
    name = f"bench-cluster-{next(_names)}"
    replicas = [[leader, *(broker for broker in BROKERS if broker != leader)] for leader in leaders]
    new = NewTopic(name, len(leaders), replica_assignment=replicas, config=_SAFE)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    admin.create_topics([new])[name].result(WAIT_S)
    wait_in_sync(cluster, name)
    try:
        yield name
    finally:
        topics.delete_topic(cluster.bootstrap, name)


# -- throughput, latency, memory -----------------------------------------------------------------------------


def cpu_seconds(cluster: ClusterPeer) -> float:
    return sum(map(machine.cpu_seconds, (*cluster.broker_pids, cluster.keeper_pid)))


def produce(bench: Bench, contender: Contender) -> Metrics:
    cluster = cluster_of(bench, contender)
    total_bytes = PRODUCE_BYTES * bench.scale
    with fresh_topic(cluster) as topic:
        machine.settle(4 * total_bytes)
        before = cpu_seconds(cluster)
        metrics = load.run(
            "rd_produce",
            bootstrap=cluster.bootstrap,
            topic=topic,
            partition=ANY_PARTITION,
            size=SIZE_BYTES,
            acks="all",
            bytes=total_bytes,
        )
        # Everybody has everything: a follower outside the in-sync replicas must not save the others its work.
        wait_in_sync(cluster, topic)
        used = cpu_seconds(cluster) - before
        anonymous = sum(machine.memory_bytes(pid, "RssAnon") for pid in cluster.broker_pids)
    _rates[contender.key].append(metrics["mb_per_s"])
    return {
        **metrics,
        "broker_cpu_s": used,
        "cpu_s_per_gb": used / (metrics["bytes"] / GB),
        "rss_anon_mb": anonymous / 1e6,
    }


def latency(bench: Bench, contender: Contender) -> Metrics:
    """How long acknowledgements take at a rate that is 30 % of what the slower of the two can take."""
    for who in BOTH:
        if who.peer in bench.peers and not _rates[who.key]:
            produce(bench, who)
    rate = SHARE_OF_MAXIMUM * min(statistics.median(found) for found in _rates.values() if found)
    cluster = cluster_of(bench, contender)
    seconds = LATENCY_SECONDS * bench.scale
    with fresh_topic(cluster) as topic:
        machine.settle(4 * rate * 1e6 * seconds)
        return load.run(
            "rd_paced",
            bootstrap=cluster.bootstrap,
            topic=topic,
            partition=ANY_PARTITION,
            size=SIZE_BYTES,
            acks="all",
            mb_per_s=rate,
            seconds=seconds,
        )


# -- a wiped follower ----------------------------------------------------------------------------------------


def catch_up(bench: Bench, contender: Contender) -> Metrics:
    """A follower begins with an empty disk: how fast it copies, from the first byte to the last."""
    cluster = cluster_of(bench, contender)
    total_bytes = CATCH_UP_BYTES * bench.scale
    leader, wiped = _leader_and_follower(cluster)
    with fresh_topic(cluster, (leader,)) as topic:
        machine.settle(4 * total_bytes)
        load.run(
            "rd_produce",
            bootstrap=cluster.bootstrap,
            topic=topic,
            size=SIZE_BYTES,
            acks="all",
            bytes=total_bytes,
        )
        wait_in_sync(cluster, topic)
        broker = cluster.brokers[wiped]
        whole_bytes = _log_bytes(broker.data_dir, topic)
        broker.kill()
        wait_in_sync(cluster, topic, len(BROKERS) - 1)
        shutil.rmtree(broker.data_dir)
        machine.settle(total_bytes)
        broker.prepare()
        began = time.monotonic()
        broker.launch()
        first = wait_for(lambda: _log_bytes(broker.data_dir, topic) > 0, "the first bytes are copied")
        had_bytes = _log_bytes(broker.data_dir, topic)
        last = wait_for(lambda: _log_bytes(broker.data_dir, topic) >= whole_bytes, "the last byte is copied")
        broker.wait_ready()
        in_sync = wait_in_sync(cluster, topic)
    return {
        "mb_per_s": (whole_bytes - had_bytes) / (last - first) / 1e6,
        "seconds": last - first,
        "start_to_in_sync_s": in_sync - began,
    }


def _leader_and_follower(cluster: ClusterPeer) -> tuple[int, int]:
    """Two brokers, the second of which is not the controller."""
    controller = cluster.controller()
    follower = next(broker for broker in BROKERS if broker != controller)
    return next(broker for broker in BROKERS if broker != follower), follower


def _log_bytes(data_dir: Path, topic: str) -> int:
    """What there is of a topic's messages, in either broker's directory."""
    total = 0
    for folder, _, names in os.walk(data_dir):
        if topic not in folder:
            continue
        for name in names:
            if name.endswith(".log"):
                try:
                    total += os.path.getsize(os.path.join(folder, name))
                except FileNotFoundError:
                    continue
    return total


# -- a killed leader -----------------------------------------------------------------------------------------


def fail_over(bench: Bench, contender: Contender) -> Metrics:
    """From the kill to the first acknowledgement by whoever leads then; beside it when the cluster noticed."""
    cluster = cluster_of(bench, contender)
    _, leader = _leader_and_follower(cluster)
    others = [broker.port for number, broker in cluster.brokers.items() if number != leader]
    with fresh_topic(cluster, (leader,)) as topic:
        machine.settle()
        notice = cluster.notice_of(leader)
        killed_at, killed = time.time(), time.monotonic()
        cluster.brokers[leader].kill()
        writable = wait_writable(others, topic) - killed
        detected = notice.moment() - killed_at
        cluster.brokers[leader].start()
        wait_in_sync(cluster, topic)
    return {
        "writable_s": writable,
        "detected_s": detected,
        "after_detection_ms": 1000 * (writable - detected),
    }


def wait_writable(ports: list[int], topic: str) -> float:
    """Ask all of them, again and again, to take one message; the moment at which one has acknowledged it."""
    request = topics.produce_request(topic, 0, acks=-1)
    connections = [socket.create_connection((HOST, port), timeout=WAIT_S) for port in ports]
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            for connection in connections:
                if topics.asked(connection, request, len(topic)) == 0:
                    return time.monotonic()
            time.sleep(POLL_S)
    finally:
        for connection in connections:
            connection.close()
    raise TimeoutError(f"nobody took a message in {WAIT_S:.0f} s")


# -- the report ----------------------------------------------------------------------------------------------

_PART = "cluster"
MEASUREMENTS = (
    Measurement("cluster-produce-1k", _PART, produce, BOTH),
    Measurement("cluster-latency", _PART, latency, BOTH, rounds=3),
    Measurement("cluster-catch-up", _PART, catch_up, BOTH, rounds=3, warmup_rounds=0),
    Measurement("cluster-fail-over", _PART, fail_over, BOTH, rounds=5, warmup_rounds=0),
)


def _row(title: str, key: str, metric: str, unit: str, target: float | None, **more: bool) -> Row:
    return Row(title, key, metric, unit, target=target, **more)  # type: ignore[arg-type]


_LOWER: Mapping[str, bool] = {"higher_is_better": False}
CLUSTER_ROWS = (
    _row("produce 1 kB, acks=all, three replicas", "cluster-produce-1k", "mb_per_s", "MB/s", 1.0),
    _row("… CPU of all processes per GB", "cluster-produce-1k", "cpu_s_per_gb", "s/GB", 0.8, **_LOWER),
    _row("… RssAnon of the three brokers", "cluster-produce-1k", "rss_anon_mb", "MB", 0.15, **_LOWER),
    _row("acknowledged at 30 % of the lower rate, p50", "cluster-latency", "p50_us", "µs", None, **_LOWER),
    _row("acknowledged at 30 % of the lower rate, p99", "cluster-latency", "p99_us", "µs", 1.0, **_LOWER),
    _row("a wiped follower copies", "cluster-catch-up", "mb_per_s", "MB/s", 1.0),
    _row(
        "… from its start until it is in sync", "cluster-catch-up", "start_to_in_sync_s", "s", None, **_LOWER
    ),
    _row("leader killed: writable again after", "cluster-fail-over", "writable_s", "s", 1.0, **_LOWER),
    _row("… noticed after", "cluster-fail-over", "detected_s", "s", None, **_LOWER),
    _row(
        "… from there until writable",
        "cluster-fail-over",
        "after_detection_ms",
        "ms",
        500,
        absolute=True,
        **_LOWER,
    ),
)
