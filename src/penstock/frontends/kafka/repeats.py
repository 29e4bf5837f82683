"""What a request names over and over is answered once. Kafka answers as often; no client asks so.

A name takes a few bytes, and what is told of it may be as large as a group, a partition's producers or all settings.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

_Named = TypeVar("_Named")
_Topic = TypeVar("_Topic", str, bytes)  # its name or its id


def without_repeats(named: Sequence[_Named], key: Callable[[_Named], Hashable]) -> list[_Named]:
    return list({key(entry): entry for entry in named}.values())


def partitions_without_repeats(
    named: Sequence[tuple[_Topic, Sequence[int]]],
) -> Iterable[tuple[_Topic, Iterable[int]]]:
    wanted: dict[_Topic, dict[int, None]] = {}
    for topic, partitions in named:
        wanted.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return wanted.items()
