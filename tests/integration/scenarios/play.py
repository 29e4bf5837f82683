"""Plays a scenario through one client's driver against one broker."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.scenarios.expect import matches
from tests.integration.scenarios.proxy import CuttingProxy
from tests.integration.scenarios.raw import stored_codecs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.integration.scenarios.catalog import Scenario, Step

# What a broker decides takes a moment to show in what it tells (Kafka answers before its metadata has
# caught up), so reads are repeated until they say what they must.
READ_OPS = frozenset(
    {
        "consume",
        "describe_cluster",
        "describe_config",
        "describe_default",
        "describe_log_dirs",
        "describe_producers",
        "describe_topic",
        "list_offsets",
        "list_topics",
        "offset_for_time",
    }
)
SETTLE_S = 20.0
POLL_S = 0.05
_runs = itertools.count(1)


class Driver(Protocol):
    """One client library: `run` performs an operation of the catalog and answers in the catalog's terms."""

    name: ClassVar[str]
    # What the library cannot do: an operation or a whole scenario, with the reason.
    gaps: ClassVar[Mapping[str, str]]

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any: ...


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...
    @property
    def port(self) -> int: ...


def play(scenario: Scenario, driver: Driver, broker: Broker) -> None:
    """Every step in order; an operation the library does not have is left out, as its gaps declare."""
    if scenario.name in driver.gaps:
        pytest.skip(driver.gaps[scenario.name])
    own = scenario.ops - driver.gaps.keys() - HARNESS_OPS.keys()
    if not own:
        pytest.skip("; ".join(driver.gaps[op] for op in sorted(scenario.ops & driver.gaps.keys())))
    prefix = f"{driver.name}-{os.getpid()}-{next(_runs)}-"
    for number, step in enumerate(scenario.steps, 1):
        if step.op not in driver.gaps:
            _take(step, driver, broker, prefix, f"{scenario.name}, step {number}")


def _take(step: Step, driver: Driver, broker: Broker, prefix: str, where: str) -> None:
    deadline = time.monotonic() + (SETTLE_S if step.op in READ_OPS else 0)
    while True:
        got = _perform(step, driver, broker, prefix)
        if matches(step.expect, got):
            return
        if time.monotonic() >= deadline:
            pytest.fail(f"{where}: {driver.name} {step.op}\n wanted {step.expect!r}\n got {_short(got)}")
        time.sleep(POLL_S)


def _perform(step: Step, driver: Driver, broker: Broker, prefix: str) -> Any:
    args = dict(step.args)
    if "topic" in args:
        args["topic"] = prefix + args["topic"]
    if step.op in HARNESS_OPS:
        return HARNESS_OPS[step.op](broker, **args)
    cuts = args.pop("through_cuts", 0)
    if cuts:
        with CuttingProxy(broker.port, cuts) as proxy:
            got = driver.run(step.op, proxy.bootstrap, args)
            return got if proxy.made == cuts else {"cuts made": proxy.made, "wanted": cuts}
    got = driver.run(step.op, broker.bootstrap, args)
    if step.op == "list_topics":
        return [name.removeprefix(prefix) for name in got if name.startswith(prefix)]
    return got


def _short(got: Any, limit: int = 2000) -> str:
    text = repr(got)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _prepare_topic(broker: Broker, topic: str, partitions: int, configs: dict[str, str]) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
    admin.create_topics([wanted])[topic].result()
    deadline = time.monotonic() + SETTLE_S
    while not _has_leaders(admin, topic, partitions):
        if time.monotonic() >= deadline:
            pytest.fail(f"topic {topic} has no leaders after {SETTLE_S} s")
        time.sleep(POLL_S)
    return "ok"


def _has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(timeout=10).topics.get(topic)
    return (
        found is not None
        and [partition.leader >= 0 for partition in found.partitions.values()] == [True] * partitions
    )


def _stored(broker: Broker, topic: str, partition: int) -> list[int]:
    return stored_codecs(broker.port, topic, partition)


# Done by the harness itself, the same way for every client.
HARNESS_OPS: dict[str, Callable[..., Any]] = {"prepare_topic": _prepare_topic, "stored_codecs": _stored}
