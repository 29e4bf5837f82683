"""What a request names over and over. As in Kafka it is answered as often; but not where that would cost much.

A name takes a few bytes, and what is told of it may be as large as a group, a partition's producers or all settings: a
request of the largest size would be answered with more than there is memory. So in long lists each counts once.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from penstock.core.limits import REPEATS_ANSWERED_MAX

_Named = TypeVar("_Named")
_Topic = TypeVar("_Topic", str, bytes)  # its name or its id


def without_repeats(named: Sequence[_Named], key: Callable[[_Named], Hashable]) -> list[_Named]:
    if len(named) <= REPEATS_ANSWERED_MAX:
        return list(named)
    return list({key(one): one for one in named}.values())


def partitions_without_repeats(
    named: Sequence[tuple[_Topic, Sequence[int]]],
) -> Iterable[tuple[_Topic, Iterable[int]]]:
    if sum(len(partitions) for _, partitions in named) <= REPEATS_ANSWERED_MAX:
        return named
    wanted: dict[_Topic, dict[int, None]] = {}
    for topic, partitions in named:
        wanted.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return wanted.items()
