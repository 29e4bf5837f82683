"""What both sources are asked, and which of the records that are there the answer has to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.clients.spark.world import NOON_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.spark.rows import Seen
    from tests.clients.spark.world import World

COMMITTED = {"kafka.isolation.level": "read_committed"}
BOTH = ("penstock", "kafka")
KAFKA = ("kafka",)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    options: Callable[[World], dict[str, str]]
    topics: Callable[[World], list[str]]
    keeps: Callable[[Seen], bool] = lambda _: True
    committed: bool = False
    on: tuple[str, ...] = BOTH
    # Offsets that a stream has no name for, or a batch has not.
    batch: bool = True
    stream: bool = True

    def __str__(self) -> str:
        return self.name

    def wanted(self, world: World, *, headers: bool) -> list[Seen]:
        there = world.there(*self.topics(world), committed=self.committed)
        kept = [seen for seen in there if self.keeps(seen)]
        return kept if headers else [seen._replace(headers=None) for seen in kept]


def at(topic: str, **offsets: int) -> str:
    """JSON as both sources take it: at("t", p0=5, p1=-1)."""
    return json.dumps({topic: {name.removeprefix("p"): offset for name, offset in offsets.items()}})


def subscribed(topic: Callable[[World], str], **more: str) -> Callable[[World], dict[str, str]]:
    return lambda world: {"subscribe": topic(world)} | more


def mixed(world: World) -> str:
    return world.mixed


def _mixed(
    name: str,
    options: Callable[[World], dict[str, str]],
    keeps: Callable[[Seen], bool] = lambda _: True,
    *,
    batch: bool = True,
    stream: bool = True,
) -> Scenario:
    def all_options(world: World) -> dict[str, str]:
        return {"subscribe": world.mixed, "includeHeaders": "true"} | options(world)

    return Scenario(name, all_options, lambda world: [world.mixed], keeps, batch=batch, stream=stream)


SCENARIOS = [
    _mixed("every message, with headers", lambda _: {}),
    _mixed("without headers", lambda _: {"includeHeaders": "false"}),
    _mixed(
        "offsets as JSON",
        lambda world: {
            "startingOffsets": at(world.mixed, p0=5, p1=-2, p2=40, p3=0),
            "endingOffsets": at(world.mixed, p0=-1, p1=17, p2=41, p3=-1),
        },
        lambda seen: {0: seen.offset >= 5, 1: seen.offset < 17, 2: seen.offset == 40}[seen.partition],
        stream=False,
    ),
    _mixed(
        "starting offsets as JSON",
        lambda world: {"startingOffsets": at(world.mixed, p0=5, p1=-2, p2=-1, p3=0)},
        lambda seen: {0: seen.offset >= 5, 1: True, 2: False}[seen.partition],
        batch=False,
    ),
    _mixed(
        "between two times",
        lambda _: {
            "startingTimestamp": str(NOON_MS + 31_500),
            "startingOffsetsByTimestampStrategy": "latest",  # for the empty partition
            "endingTimestamp": str(NOON_MS + 150_000),
        },
        lambda seen: NOON_MS + 31_500 <= seen.timestamp < NOON_MS + 150_000,
        stream=False,
    ),
    _mixed(
        "since a time",
        lambda _: {
            "startingTimestamp": str(NOON_MS + 31_500),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        lambda seen: seen.timestamp >= NOON_MS + 31_500,
    ),
    _mixed(
        "since a time per partition",
        lambda world: {
            "startingOffsetsByTimestamp": at(
                world.mixed, p0=NOON_MS, p1=NOON_MS + 100_000, p2=NOON_MS + 10**9, p3=NOON_MS
            ),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        lambda seen: {0: True, 1: seen.timestamp >= NOON_MS + 100_000, 2: False}[seen.partition],
    ),
    _mixed(
        "until a time per partition",
        lambda world: {
            "endingOffsetsByTimestamp": at(
                world.mixed, p0=NOON_MS, p1=NOON_MS + 100_000, p2=NOON_MS + 10**9, p3=NOON_MS
            )
        },
        lambda seen: {0: False, 1: seen.timestamp < NOON_MS + 100_000, 2: True}[seen.partition],
        stream=False,
    ),
    _mixed("more tasks than partitions", lambda _: {"minPartitions": "11"}),
    _mixed("tasks of at most so many records", lambda _: {"maxRecordsPerPartition": "9"}),
    _mixed("a few at a time", lambda _: {"maxOffsetsPerTrigger": "37"}, batch=False),
    _mixed(
        "a few at a time, cut further",
        lambda _: {"maxOffsetsPerTrigger": "80", "minPartitions": "7"},
        batch=False,
    ),
    Scenario(
        "stamped by the broker", subscribed(lambda world: world.appended), lambda world: [world.appended]
    ),
    Scenario("nothing there", subscribed(lambda world: world.empty), lambda world: [world.empty]),
    Scenario(
        "several topics",
        lambda world: {"subscribe": f"{world.mixed},{world.appended},{world.empty}"},
        lambda world: [world.mixed, world.appended, world.empty],
    ),
    Scenario(
        "topics by pattern",
        lambda world: {"subscribePattern": world.topics.prefix + r"\.(mix.*|appen?ded)"},
        lambda world: [world.mixed, world.appended],
    ),
    Scenario(
        "assigned partitions",
        lambda world: {"assign": json.dumps({world.mixed: [1, 3], world.appended: [0]})},
        lambda world: [world.mixed, world.appended],
        lambda seen: seen.partition == (1 if seen.topic.endswith("mixed") else 0),
    ),
    Scenario(
        "a log that begins late", subscribed(lambda world: world.trimmed), lambda world: [world.trimmed]
    ),
    Scenario(
        "what was asked for is partly gone",
        lambda world: {
            "subscribe": world.trimmed,
            "failOnDataLoss": "false",
            "startingOffsets": at(world.trimmed, p0=3, p1=20),
        },
        lambda world: [world.trimmed],
        lambda seen: seen.partition == 0 or seen.offset >= 20,
    ),
    Scenario(
        "everything, committed or not",
        subscribed(lambda world: world.transactions, includeHeaders="true"),
        lambda world: [world.transactions],
        on=KAFKA,
    ),
    Scenario(
        "committed records",
        subscribed(lambda world: world.transactions, includeHeaders="true", **COMMITTED),
        lambda world: [world.transactions],
        committed=True,
        on=KAFKA,
    ),
    Scenario(
        "committed records, a few at a time",
        subscribed(lambda world: world.transactions, maxOffsetsPerTrigger="41", **COMMITTED),
        lambda world: [world.transactions],
        committed=True,
        on=KAFKA,
        batch=False,
    ),
    Scenario(
        "committed records in small tasks",
        subscribed(lambda world: world.transactions, maxRecordsPerPartition="7", **COMMITTED),
        lambda world: [world.transactions],
        committed=True,
        on=KAFKA,
    ),
    Scenario(
        "compacted",
        subscribed(lambda world: world.compacted, includeHeaders="true"),
        lambda world: [world.compacted],
        on=KAFKA,
    ),
    Scenario(
        "compacted, a few at a time: some batches fall into gaps",
        subscribed(lambda world: world.compacted, maxOffsetsPerTrigger="5"),
        lambda world: [world.compacted],
        on=KAFKA,
        batch=False,
    ),
    Scenario(
        "compacted, in tasks of which some fall into gaps",
        subscribed(lambda world: world.compacted, maxRecordsPerPartition="3"),
        lambda world: [world.compacted],
        on=KAFKA,
    ),
]


def cases(*, stream: bool) -> list[tuple[str, Scenario]]:
    """Broker and scenario, for those that mean something there."""
    return [
        (kind, scenario)
        for scenario in SCENARIOS
        for kind in scenario.on
        if (scenario.stream if stream else scenario.batch)
    ]
