"""What is measured on one broker: each function is one run against one contender and returns plain figures.

The comparison of the figures, and the targets, are in `rows.py`.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from benchmarks import load, machine, topics
from benchmarks.contenders import ALL_VARIANTS, PLAIN, Bench, Contender

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.load import Metrics

GB = 1e9
ROUNDS = 5
# The JVM compiles while it runs; the first round of everybody is thrown away.
WARMUP_ROUNDS = 1


class Run(Protocol):
    """One run of a measurement against one contender."""

    def __call__(self, bench: Bench, contender: Contender) -> Metrics: ...


@dataclass(frozen=True)
class Measurement:
    """A kind of run, who takes part, and how often."""

    key: str
    part: str
    run: Run
    contenders: tuple[Contender, ...] = PLAIN
    rounds: int = ROUNDS
    warmup_rounds: int = WARMUP_ROUNDS
    # Reads data that a first run wrote; forgotten when the measurement ends.
    topics: dict[str, str] = field(default_factory=dict)


@contextmanager
def fresh_topic(bench: Bench, contender: Contender) -> Iterator[dict[str, object]]:
    """A new topic, as the arguments that every load generator takes; deleted afterwards."""
    name = bench.new_topic(contender)
    try:
        yield {"bootstrap": bench.broker(contender).bootstrap, "topic": name}
    finally:
        bench.delete_topic(contender, name)


def with_cpu(bench: Bench, contender: Contender, program: str, **arguments: object) -> Metrics:
    """Run a throughput load and add what the broker's processor time came to, per GB of payload."""
    pid = bench.broker(contender).pid
    before = machine.cpu_seconds(pid)
    metrics = load.run(program, **arguments)
    used = machine.cpu_seconds(pid) - before
    return {**metrics, "broker_cpu_s": used, "cpu_s_per_gb": used / (metrics["bytes"] / GB)}


def produce(bench: Bench, contender: Contender, *, size: int, acks: str, total_bytes: float) -> Metrics:
    total_bytes *= bench.scale
    with fresh_topic(bench, contender) as target:
        machine.settle(1.5 * total_bytes)
        return with_cpu(bench, contender, "rd_produce", **target, size=size, acks=acks, bytes=total_bytes)


def consume(
    bench: Bench,
    contender: Contender,
    filled: dict[str, str],
    *,
    size: int,
    total_bytes: float,
    program: str,
) -> Metrics:
    """Read a topic that fits in the page cache; written once per contender, read in every round."""
    total_bytes *= bench.scale
    bootstrap = bench.broker(contender).bootstrap
    if contender.key not in filled:
        machine.settle(1.5 * total_bytes)
        filled[contender.key] = bench.new_topic(contender)
        load.run("rd_produce", bootstrap=bootstrap, topic=filled[contender.key], size=size, bytes=total_bytes)
    machine.settle()
    messages = int(total_bytes / size)
    topic = filled[contender.key]
    return with_cpu(bench, contender, program, bootstrap=bootstrap, topic=topic, messages=messages)


def pipelined(bench: Bench, contender: Contender) -> Metrics:
    with fresh_topic(bench, contender) as target:
        machine.settle()
        return load.run("raw_pipeline", **target, seconds=5 * bench.scale)


def prepared(bench: Bench, contender: Contender) -> Metrics:
    """Batches of 100 B messages as full and as many in flight as librdkafka sends them, without its work on them."""
    with fresh_topic(bench, contender) as target:
        machine.settle(3 * GB * bench.scale)
        return load.run("raw_pipeline", **target, size=100, records=9000, window=5, seconds=2 * bench.scale)


def round_trip(bench: Bench, contender: Contender) -> Metrics:
    with fresh_topic(bench, contender) as target:
        machine.settle()
        return load.run("raw_roundtrip", **target, requests=int(30_000 * bench.scale))


def end_to_end(bench: Bench, contender: Contender) -> Metrics:
    with fresh_topic(bench, contender) as target:
        machine.settle()
        return load.run("rd_latency", **target, rate=2000, seconds=10 * bench.scale)


def start(bench: Bench, contender: Contender) -> Metrics:
    """From starting the process, on a data directory with one topic, to the first acknowledged message."""
    broker = bench.new_broker(contender)
    try:
        broker.prepare()
        broker.start()
        topics.create_topic(broker.bootstrap, "first", config=contender.topic_config)
        broker.stop()
        machine.settle()
        began = time.monotonic()
        broker.launch()
        return {"seconds": topics.wait_acknowledged(broker.port, "first") - began}
    finally:
        broker.close()
        shutil.rmtree(broker.work_dir)


def memory(bench: Bench, contender: Contender) -> Metrics:
    """Anonymous memory of a new process after it took 2 GB of 1 kB messages."""
    total_bytes = 2 * GB * bench.scale
    broker = bench.new_broker(contender)
    try:
        broker.prepare()
        broker.start()
        topics.create_topic(broker.bootstrap, "two-gb", config=contender.topic_config)
        machine.settle(total_bytes)
        load.run("rd_produce", bootstrap=broker.bootstrap, topic="two-gb", size=1000, bytes=total_bytes)
        anonymous = machine.memory_bytes(broker.pid, "RssAnon")
        return {
            "rss_anon_mb": anonymous / 1e6,
            "rss_peak_mb": machine.memory_bytes(broker.pid, "VmHWM") / 1e6,
        }
    finally:
        broker.close()
        shutil.rmtree(broker.work_dir)


def raw_limit(bench: Bench, contender: Contender) -> Metrics:
    total_bytes = 2 * GB * bench.scale
    machine.settle(total_bytes)
    return load.run("raw_limit", file=bench.base_dir / "raw-limit", bytes=total_bytes)


def _consume(key: str, size: int, total_bytes: float, program: str = "rd_consume") -> Measurement:
    filled: dict[str, str] = {}
    run = partial(consume, filled=filled, size=size, total_bytes=total_bytes, program=program)
    return Measurement(key, "consume", run, topics=filled)


MACHINE = Contender("machine", "machine")
SHOW = (
    Measurement(
        "produce-1k-acks1",
        "produce",
        partial(produce, size=1000, acks="1", total_bytes=1 * GB),
        contenders=ALL_VARIANTS,
    ),
    Measurement(
        "produce-1k-acksall",
        "produce",
        partial(produce, size=1000, acks="all", total_bytes=1 * GB),
        contenders=ALL_VARIANTS,
    ),
    Measurement("produce-100b", "produce", partial(produce, size=100, acks="1", total_bytes=0.4 * GB)),
    Measurement("produce-100b-prepared", "produce", prepared),
    _consume("consume-1k", 1000, 2 * GB),
    _consume("consume-100b", 100, 0.5 * GB),
    _consume("consume-1k-unopened", 1000, 2 * GB, program="raw_fetch"),
    _consume("consume-100b-unopened", 100, 0.5 * GB, program="raw_fetch"),
    Measurement("pipelined", "requests", pipelined),
    Measurement("round-trip", "requests", round_trip),
    Measurement("end-to-end", "latency", end_to_end),
    Measurement("start", "start", start, warmup_rounds=0),
    Measurement("memory", "memory", memory, warmup_rounds=0),
    Measurement("raw-limit", "limit", raw_limit, contenders=(MACHINE,), warmup_rounds=0),
)
