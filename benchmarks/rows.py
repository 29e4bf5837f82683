"""The rows of the report: which figure of which contenders is set against which, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison. A target is on the ratio ours/theirs, or on our figure itself where `absolute` is set."""

    title: str
    measurement: str
    metric: str
    unit: str
    ours: str = "penstock"
    theirs: str | None = "kafka"
    target: float | None = None
    higher_is_better: bool = True
    absolute: bool = False

    def met(self, value: float) -> bool:
        if self.target is None:
            return True
        return value >= self.target if self.higher_is_better else value <= self.target

    @property
    def target_text(self) -> str:
        if self.target is None:
            return ""
        unit = f" {self.unit}" if self.absolute else ""
        return f"{'≥' if self.higher_is_better else '≤'} {self.target:g}{unit}".rstrip()


def _at_least(title: str, measurement: str, metric: str, unit: str, target: float) -> Row:
    return Row(title, measurement, metric, unit, target=target)


def _at_most(title: str, measurement: str, metric: str, unit: str, target: float) -> Row:
    return Row(title, measurement, metric, unit, target=target, higher_is_better=False)


UNSYNCED = (
    _at_least("produce 1 kB, acks=1", "produce-1k-acks1", "mb_per_s", "MB/s", 1.4),
    _at_least("produce 1 kB, acks=all", "produce-1k-acksall", "mb_per_s", "MB/s", 1.4),
    _at_least("produce 100 B, acks=1", "produce-100b", "messages_per_s", "msg/s", 1.5),
    _at_least("consume 1 kB from the page cache", "consume-1k", "mb_per_s", "MB/s", 1.4),
    _at_least("consume 100 B from the page cache", "consume-100b", "messages_per_s", "msg/s", 1.0),
    Row(
        "… 100 B messages in prepared batches from a bare socket",
        "produce-100b-prepared",
        "messages_per_s",
        "msg/s",
    ),
    Row("… 1 kB messages fetched by a bare socket", "consume-1k-unopened", "mb_per_s", "MB/s"),
    Row("… 100 B messages fetched by a bare socket", "consume-100b-unopened", "messages_per_s", "msg/s"),
    _at_least("one-message requests, pipelined on one connection", "pipelined", "requests_per_s", "req/s", 5),
    _at_most("raw-socket round trip, p50", "round-trip", "p50_us", "µs", 0.8),
    _at_most("raw-socket round trip, p99", "round-trip", "p99_us", "µs", 1.0),
    _at_most("end to end at 2,000 msg/s, p50", "end-to-end", "p50_us", "µs", 0.7),
    _at_most("end to end at 2,000 msg/s, p99", "end-to-end", "p99_us", "µs", 0.7),
    _at_most("broker CPU per GB produced, 1 kB", "produce-1k-acks1", "cpu_s_per_gb", "s/GB", 0.7),
    _at_most("broker CPU per GB consumed, 1 kB", "consume-1k", "cpu_s_per_gb", "s/GB", 0.7),
    _at_most("process start to first acknowledged message", "start", "seconds", "s", 0.25),
    _at_most("RssAnon after writing 2 GB", "memory", "rss_anon_mb", "MB", 0.1),
)


def _synced(title: str, measurement: str, theirs: str, target: float) -> Row:
    return Row(title, measurement, "mb_per_s", "MB/s", ours="penstock-synced", theirs=theirs, target=target)


SYNCED = (
    _synced("produce 1 kB, acks=1, beside Kafka as it comes", "produce-1k-acks1", "kafka", 1.0),
    _synced("produce 1 kB, acks=1, beside `flush.messages=1`", "produce-1k-acks1", "kafka-flush", 3.0),
    _synced("produce 1 kB, acks=all, beside Kafka as it comes", "produce-1k-acksall", "kafka", 1.0),
    _synced("produce 1 kB, acks=all, beside `flush.messages=1`", "produce-1k-acksall", "kafka-flush", 3.0),
)
LIMIT = (
    Row("bytes copied socket → file", "raw-limit", "mb_per_s", "MB/s", ours="machine", theirs=None),
    Row(
        "CPU per GB copied",
        "raw-limit",
        "cpu_s_per_gb",
        "s/GB",
        ours="machine",
        theirs=None,
        higher_is_better=False,
    ),
)
