"""What happens when it gets big: connections, partitions, a cold backlog, a crash on a long log, hours of load.

Every run has a broker and a directory of its own, removed afterwards. `SCALE=0.1` shrinks bytes, connections
and partitions together, to try the machinery; only the full size says anything about the targets.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tools.peers import BrokerProcess, PeerError, PenstockPeer

from benchmarks import load, machine, topics
from benchmarks.contenders import KAFKA, PENSTOCK, PENSTOCK_SYNCED, Bench, Contender
from benchmarks.measurements import GB, Measurement, Run
from benchmarks.metrics import histogram_quantile
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.load import Metrics

CONNECTIONS = 10_000
REAL_CLIENTS = 50
CONNECTED_SECONDS = 30
CONNECTION_PARTITIONS = 50
PARTITIONS = 2_000
BACKLOG_BYTES = 10 * GB
BACKLOG_RATE_BYTES = 4 * GB
CRASH_BYTES = 20 * GB
LONG_BYTES = 30 * GB
MESSAGE_BYTES = 1000
WARMUP_S = 2
LAG_METRIC = "penstock_event_loop_lag_seconds"
# The live topic grows while the backlog is read.
BACKLOG_DISK_FACTOR = 2.5


@contextmanager
def own_broker(bench: Bench, contender: Contender) -> Iterator[BrokerProcess]:
    """A broker for one run only; its data goes when the run ends, whatever happened."""
    broker = bench.new_broker(contender)
    try:
        broker.prepare()
        broker.start()
        yield broker
    finally:
        try:
            broker.kill()
        finally:
            shutil.rmtree(broker.work_dir, ignore_errors=True)


def need_disk(bench: Bench, size_bytes: float) -> None:
    free = shutil.disk_usage(bench.base_dir).free
    if free < size_bytes * 1.2:
        raise PeerError(f"needs {size_bytes * 1.2 / GB:.0f} GB of disk, {free / GB:.0f} GB are free")


def connections(bench: Bench, contender: Contender) -> Metrics:
    """Ten thousand connections with a message a second each, beside fifty real clients."""
    count = int(CONNECTIONS * bench.scale)
    limit = machine.raise_file_limit()
    if limit < count + 1000:
        raise PeerError(f"{count} connections need as many open files; this system allows {limit}")
    with own_broker(bench, contender) as broker, ExitStack() as stack:
        for name, partitions in (("crowd", CONNECTION_PARTITIONS), ("clients", REAL_CLIENTS // 2)):
            topics.create_topic(broker.bootstrap, name, partitions=partitions, config=contender.topic_config)
        clients = load.Running(
            "rd_clients", bootstrap=broker.bootstrap, topic="clients", clients=REAL_CLIENTS
        )
        stack.callback(clients.abandon_if_running)
        crowd = load.run(
            "raw_connections",
            bootstrap=broker.bootstrap,
            topic="crowd",
            partitions=CONNECTION_PARTITIONS,
            connections=count,
            seconds=CONNECTED_SECONDS,
        )
        peak = machine.memory_bytes(broker.pid, "VmHWM")
        clients.interrupt()
        real = clients.result()
    # A message that could not go out because the answer before it was late counts as not acknowledged.
    due = crowd["sent"] + crowd["late"] + real["sent"]
    return {
        "connections": crowd["connections"],
        "sent": crowd["sent"] + real["sent"],
        "acknowledged_share": (crowd["acknowledged"] + real["acknowledged"]) / due,
        "late": crowd["late"],
        "dropped": crowd["dropped"] + real["disconnects"],
        "p99_us": crowd["p99_us"],
        "clients_p99_us": real["p99_us"],
        "rss_peak_mb": peak / 1e6,
    }


def partitions_restart(bench: Bench, contender: Contender) -> Metrics:
    """A broker with thousands of partitions, each with data, stopped cleanly and started again."""
    count = int(PARTITIONS * bench.scale)
    with own_broker(bench, contender) as broker:
        topics.create_topic(broker.bootstrap, "wide", partitions=count, config=contender.topic_config)
        for partition in range(count):
            topics.wait_acknowledged(broker.port, "wide", partition)
        broker.stop()
        machine.settle()
        began = time.monotonic()
        broker.launch()
        ended = max(topics.wait_acknowledged(broker.port, "wide", at) for at in (0, count // 2, count - 1))
        return {"partitions": count, "seconds": ended - began}


@cache
def half_of_the_lower_maximum(bench: Bench) -> float:
    """The rate for the brokers beside their backlogs, in MB/s: the same for all, and well within each one's reach.

    Half of Penstock's own maximum would be more than the memory and the disk of a small virtual machine give to
    writer and reader together: the figure would be the machine's.
    """
    rates = []
    for contender in (PENSTOCK, KAFKA):
        if contender.peer not in bench.peers:
            continue
        with own_broker(bench, contender) as broker:
            topics.create_topic(broker.bootstrap, "maximum", config=contender.topic_config)
            machine.settle(BACKLOG_RATE_BYTES * bench.scale)
            filled = load.run(
                "rd_produce",
                bootstrap=broker.bootstrap,
                topic="maximum",
                size=MESSAGE_BYTES,
                bytes=BACKLOG_RATE_BYTES * bench.scale,
            )
            rates.append(filled["mb_per_s"])
    return min(rates) / 2


def backlog(bench: Bench, contender: Contender) -> Metrics:
    """Producing at half the lower maximum rate while a consumer reads a backlog that only the disk has."""
    backlog_bytes = BACKLOG_BYTES * bench.scale
    need_disk(bench, BACKLOG_DISK_FACTOR * backlog_bytes)
    rate_mb_per_s = half_of_the_lower_maximum(bench)
    with own_broker(bench, contender) as broker, ExitStack() as stack:
        for name in ("backlog", "live"):
            topics.create_topic(broker.bootstrap, name, config=contender.topic_config)
        target = {"bootstrap": broker.bootstrap, "size": MESSAGE_BYTES}
        filled = load.run("rd_produce", **target, topic="backlog", bytes=backlog_bytes)
        machine.forget_cached(broker.data_dir)
        machine.settle(machine.WARM_LIMIT_BYTES)
        live = load.Running(
            "rd_paced", **target, topic="live", mb_per_s=rate_mb_per_s, warmup_seconds=WARMUP_S
        )
        stack.callback(live.abandon_if_running)
        time.sleep(WARMUP_S)
        read = load.run(
            "rd_consume", bootstrap=broker.bootstrap, topic="backlog", messages=int(filled["messages"])
        )
        live.interrupt()
        held = live.result()
    return {
        "rate_mb_per_s": held["mb_per_s_wanted"],
        "rate_held_share": held["mb_per_s"] / held["mb_per_s_wanted"],
        "p50_ms": held["p50_us"] / 1e3,
        "p99_ms": held["p99_us"] / 1e3,
        "backlog_mb_per_s": read["mb_per_s"],
        "seconds": held["seconds"],
    }


def crash_start(bench: Bench, contender: Contender) -> Metrics:
    """`kill -9` under load on a long log, then from process start to the first acknowledged message."""
    total_bytes = CRASH_BYTES * bench.scale
    need_disk(bench, total_bytes)
    with own_broker(bench, contender) as broker, ExitStack() as stack:
        topics.create_topic(broker.bootstrap, "long", config=contender.topic_config)
        target = {"bootstrap": broker.bootstrap, "topic": "long", "size": MESSAGE_BYTES}
        load.run("rd_produce", **target, bytes=total_bytes)
        under_way = load.Running("rd_paced", **target, mb_per_s=20)
        stack.callback(under_way.abandon_if_running)
        time.sleep(WARMUP_S)
        broker.kill()
        under_way.abandon_if_running()
        log_bytes = sum(path.stat().st_size for path in broker.data_dir.rglob("*.log"))
        began = time.monotonic()
        broker.launch()
        return {"seconds": topics.wait_acknowledged(broker.port, "long") - began, "log_gb": log_bytes / GB}


def long_write(bench: Bench, contender: Contender) -> Metrics:
    """Tens of GB at full speed, far beyond what the page cache takes, with a small probe on another connection."""
    total_bytes = LONG_BYTES * bench.scale
    need_disk(bench, total_bytes)
    with own_broker(bench, contender) as broker, ExitStack() as stack:
        for name in ("long", "probe"):
            topics.create_topic(broker.bootstrap, name, config=contender.topic_config)
        probe = load.Running(
            "raw_roundtrip", bootstrap=broker.bootstrap, topic="probe", interval_ms=20, warmup=0, requests=1e9
        )
        stack.callback(probe.abandon_if_running)
        written = load.run(
            "rd_produce", bootstrap=broker.bootstrap, topic="long", size=MESSAGE_BYTES, bytes=total_bytes
        )
        probe.interrupt()
        probed = probe.result()
        result = {
            "mb_per_s": written["mb_per_s"],
            "dropped": written["disconnects"],
            "probe_p99_ms": probed["p99_us"] / 1e3,
            "probe_max_ms": probed["max_us"] / 1e3,
            "rss_anon_mb": machine.memory_bytes(broker.pid, "RssAnon") / 1e6,
        }
        if isinstance(broker, PenstockPeer):
            result["lag_p99_ms"] = histogram_quantile(broker.metrics(), LAG_METRIC, 0.99) * 1e3
        return result


def _once(key: str, run: Run, contenders: tuple[Contender, ...] = (PENSTOCK, KAFKA)) -> Measurement:
    return Measurement(key, "growth", run, contenders, rounds=1, warmup_rounds=0)


GROWTH = (
    _once("growth-connections", connections),
    _once("growth-partitions", partitions_restart),
    _once("growth-backlog", backlog),
    _once("growth-crash", crash_start),
    _once("growth-long-write", long_write, (PENSTOCK, PENSTOCK_SYNCED, KAFKA)),
)


def _limit(
    title: str, measurement: str, metric: str, unit: str, target: float, ours: str = "penstock"
) -> Row:
    return Row(title, measurement, metric, unit, ours, target=target, higher_is_better=False, absolute=True)


def _share(title: str, measurement: str, metric: str, target: float) -> Row:
    return Row(title, measurement, metric, "", target=target, absolute=True)


GROWTH_ROWS = (
    _share(
        "10,000 connections at 1 msg/s, 50 clients: acknowledged",
        "growth-connections",
        "acknowledged_share",
        1,
    ),
    _limit("… connections dropped", "growth-connections", "dropped", "", 0),
    _limit("… peak resident memory", "growth-connections", "rss_peak_mb", "MB", 1000),
    Row("… p99 of those requests", "growth-connections", "p99_us", "µs", higher_is_better=False),
    _limit("2,000 partitions: start after a clean stop", "growth-partitions", "seconds", "s", 3),
    _share(
        "half the lower maximum beside a cold 10 GB backlog: rate held",
        "growth-backlog",
        "rate_held_share",
        0.99,
    ),
    Row("… rate", "growth-backlog", "rate_mb_per_s", "MB/s"),
    Row("… p50 of acknowledgements", "growth-backlog", "p50_ms", "ms", higher_is_better=False),
    Row("… p99 of acknowledgements", "growth-backlog", "p99_ms", "ms", target=1.0, higher_is_better=False),
    Row("… backlog read at", "growth-backlog", "backlog_mb_per_s", "MB/s"),
    _limit("start after a crash with a 20 GB log", "growth-crash", "seconds", "s", 5),
    _limit("30 GB at full speed: event-loop lag p99", "growth-long-write", "lag_p99_ms", "ms", 50),
    _limit("… connections dropped", "growth-long-write", "dropped", "", 0),
    Row("… throughput", "growth-long-write", "mb_per_s", "MB/s"),
    Row(
        "… round trip of a probe beside it, p99",
        "growth-long-write",
        "probe_p99_ms",
        "ms",
        higher_is_better=False,
    ),
    _limit(
        "the same, synced: event-loop lag p99", "growth-long-write", "lag_p99_ms", "ms", 50, "penstock-synced"
    ),
    _limit("… connections dropped", "growth-long-write", "dropped", "", 0, "penstock-synced"),
    Row("… throughput", "growth-long-write", "mb_per_s", "MB/s", ours="penstock-synced"),
)
