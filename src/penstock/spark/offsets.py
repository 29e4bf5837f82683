"""Offsets as people and checkpoints write them: the JSON of Spark's own Kafka source, and a little more.

    {"orders": {"0": 23, "1": -2}, "payments": {"0": -1}}          -2 earliest, -1 latest, in options only

A checkpoint of a stream adds four keys that no topic can have, since topic names know no `@`:

    "@ids"    {"orders": "pZm0…"}   which topic of that name was read: a recreated one is another topic
    "@retired" {"orders": {"2": 10}} partitions that left the topic, and where they ended for readers: what was unread
                                    then, if anything, was said; each may come back. (Once a list of numbers.)
    "@first"  true                  this is what `initialOffset` gave, and no checkpoint has seen it yet
    "@from"   {"orders": {"0": 5}}  where the first batch starts. Spark asks `initialOffset` again when it
                                    replays batch 0, and "latest" would mean something else by then

A checkpoint that Spark's own source wrote has none of them and is read all the same.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client.raw import EARLIEST, LATEST, TopicPartition
from penstock.spark.errors import OptionError

Offsets = dict[TopicPartition, int]

IDS, FIRST, FROM, RETIRED = "@ids", "@first", "@from", "@retired"
_MARK = "@"
_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'


def to_tree(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Topics and partitions in order: Spark compares offsets as text."""
    tree: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        tree.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return tree


def from_tree(tree: Mapping[str, Any]) -> Offsets:
    """The way back, for offsets that were written by `to_tree` or by Spark's own source."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in tree.items()
        if not topic.startswith(_MARK)
        for partition, offset in partitions.items()
    }


def parse_numbers(option: str, text: str) -> Offsets:
    """Numbers per topic and partition from an option's JSON; what is wrong with it is said in its terms."""
    tree = _parse_json(option, text, _EXAMPLE)
    numbers: Offsets = {}
    for topic, partitions in tree.items():
        if topic.startswith(_MARK):
            continue  # a stream's offsets, pasted from its checkpoint
        if not isinstance(partitions, dict):
            raise OptionError(f"{option}: {topic} must have partitions and numbers, as in {_EXAMPLE}")
        for partition, number in partitions.items():
            if not partition.isdecimal():
                raise OptionError(f"{option}: {partition!r} of {topic} is not a partition number")
            if not isinstance(number, int) or isinstance(number, bool):
                raise OptionError(f"{option}: {number!r} for {topic}-{partition} is not a whole number")
            numbers[TopicPartition(topic, int(partition))] = number
    if not numbers:
        raise OptionError(f"{option} names no partition; it looks like {_EXAMPLE}")
    return numbers


def parse_offsets(option: str, text: str, *, lowest: int) -> Offsets:
    """`lowest` is EARLIEST for where to start and LATEST for where to end: ending at the earliest is nothing."""
    offsets = parse_numbers(option, text)
    for at, offset in offsets.items():
        if offset < lowest:
            special = {EARLIEST: "-2 (earliest) or -1 (latest)", LATEST: "-1 (latest)"}[lowest]
            raise OptionError(
                f"{option}: {offset} for {at.topic}-{at.partition} is neither an offset nor {special}"
            )
    return offsets


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1]}`"""
    example = '{"orders": [0, 1]}'
    found: list[TopicPartition] = []
    for topic, partitions in _parse_json("assign", text, example).items():
        if not isinstance(partitions, list) or not all(
            type(number) is int and number >= 0 for number in partitions
        ):
            raise OptionError(f"assign: {topic} must have a list of partition numbers, as in {example}")
        found += [TopicPartition(topic, number) for number in partitions]
    if not found:
        raise OptionError(f"assign names no partition; it looks like {example}")
    return tuple(sorted(dict.fromkeys(found)))


def _parse_json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option} is not JSON ({error}); it looks like {example}") from None
    if not isinstance(tree, dict):
        raise OptionError(f"{option} must be a JSON object such as {example}")
    return tree


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of a stream, as it is between Spark, the checkpoint and this source."""

    at: Offsets
    ids: dict[str, str] = field(default_factory=dict)
    first: bool = False
    origin: Offsets | None = None
    retired: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        tree: dict[str, Any] = to_tree(self.at)
        if self.ids:
            tree[IDS] = dict(sorted(self.ids.items()))
        if self.first:
            tree[FIRST] = True
        if self.origin is not None:
            tree[FROM] = to_tree(self.origin)
        if self.retired:
            tree[RETIRED] = to_tree(self.retired)
        return tree

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "StreamOffset":
        origin = tree.get(FROM)
        return cls(
            at=from_tree(tree),
            ids=dict(tree.get(IDS, {})),
            first=bool(tree.get(FIRST, False)),
            origin=None if origin is None else from_tree(origin),
            retired=from_tree(
                {topic: told for topic, told in tree.get(RETIRED, {}).items() if isinstance(told, dict)}
            ),
        )


def named(partitions: Iterable[TopicPartition], *, most: int = 5) -> str:
    """`orders-0, orders-1, and 7 more`, for messages."""
    all_of_them = sorted(partitions)
    shown = ", ".join(f"{at.topic}-{at.partition}" for at in all_of_them[:most])
    rest = len(all_of_them) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
