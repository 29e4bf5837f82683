"""Consumer groups: how fast members are brought into one generation, and how many commits a second a broker takes.

Members and committers are bare sockets (`load/raw_rebalance.c`, `load/raw_commits.c`): a hundred client libraries on
two cores would be measured instead of the broker. No broker waits for members that may follow: the initial delay is 0.
Kafka acknowledges commits from its page cache, so Penstock stands beside it with `penstock.ack.after=written`; its
default, which syncs first, has rows of its own.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks import load, machine
from benchmarks.contenders import Bench, Contender
from benchmarks.measurements import Measurement
from benchmarks.rows import Row

if TYPE_CHECKING:
    from benchmarks.load import Metrics

MEMBERS = 100
GROUPS = 10
COMMITTERS = 100
SECONDS = 4
_NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
PENSTOCK = Contender("penstock", "penstock", broker_config={**_NO_DELAY, "penstock.ack.after": "written"})
PENSTOCK_SYNCED = Contender("penstock-synced", "penstock", broker_config=_NO_DELAY)
KAFKA = Contender("kafka", "kafka", broker_config=_NO_DELAY)
_ALL = (PENSTOCK, KAFKA, PENSTOCK_SYNCED)
# Groups that were there before would be found again with their members' last words.
_names = itertools.count(1)


def rebalance(bench: Bench, contender: Contender) -> Metrics:
    """All members join at once; then one leaves and comes back. Medians over some groups."""
    topic = bench.new_topic(contender, partitions=MEMBERS)
    try:
        machine.settle()
        return load.run(
            "raw_rebalance",
            bootstrap=bench.broker(contender).bootstrap,
            topic=topic,
            members=MEMBERS,
            groups=max(1, int(GROUPS * bench.scale)),
            name=f"rebalance-{next(_names)}",
        )
    finally:
        bench.delete_topic(contender, topic)


def commits(bench: Bench, contender: Contender, *, connections: int, window: int) -> Metrics:
    """Commits of one offset each, `window` in flight on every connection, a group for each."""
    topic = bench.new_topic(contender)
    broker = bench.broker(contender)
    try:
        machine.settle()
        before = machine.cpu_seconds(broker.pid)
        metrics = load.run(
            "raw_commits",
            bootstrap=broker.bootstrap,
            topic=topic,
            connections=connections,
            window=window,
            seconds=SECONDS * bench.scale,
            name=f"commits-{next(_names)}",
        )
        used = machine.cpu_seconds(broker.pid) - before
        return {**metrics, "broker_cpu_s": used}
    finally:
        bench.delete_topic(contender, topic)


def _commits(key: str, connections: int, window: int) -> Measurement:
    def run(bench: Bench, contender: Contender) -> Metrics:
        return commits(bench, contender, connections=connections, window=window)

    return Measurement(key, "groups", run, _ALL)


MEASUREMENTS = (
    Measurement("rebalance-100", "groups", rebalance, _ALL),
    _commits("commits", COMMITTERS, 5),
    _commits("commits-one-connection", 1, 100),
)


def _rebalance(title: str, metric: str, ours: str = "penstock", target: float | None = None) -> Row:
    return Row(title, "rebalance-100", metric, "ms", ours, target=target, higher_is_better=False)


def _rate(title: str, key: str, ours: str = "penstock", target: float | None = None) -> Row:
    return Row(title, key, "commits_per_s", "commits/s", ours, target=target)


GROUP_ROWS = (
    _rebalance("100 members join: all in one generation", "join_ms", target=1.0),
    _rebalance("… one leaves and joins again", "again_ms", target=1.0),
    _rebalance("100 members join, synced", "join_ms", "penstock-synced"),
    _rebalance("… one leaves and joins again, synced", "again_ms", "penstock-synced"),
    _rate("offset commits, 100 connections", "commits", target=1.5),
    _rate("offset commits, 100 connections, synced", "commits", "penstock-synced"),
    _rate("offset commits, pipelined on one connection", "commits-one-connection", target=1.5),
    _rate("offset commits, pipelined on one connection, synced", "commits-one-connection", "penstock-synced"),
)
