"""A large request, a portion at a time: others get their turn in between.

Where an API answers each entry of a list apart, it says which list that is: `portions=(("topics", "partitions"),)` are
the entries of `topics`, and in each of them those of `partitions`; one path for each list that it may come with. Its
handler is called with a hundred entries or so, and what it answers is put together again. In a large request, what is
named more than once is carried out once.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from penstock.core.errors import ProtocolError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.services.coordinator.later import Later
from penstock.wire.kafka.primitives import Struct

Path = tuple[str, ...]


def check_size(request: Struct, entries_max: int) -> None:
    entries = _count(request)
    if entries > entries_max:
        raise ProtocolError(
            f"{type(request).__name__} with {entries} entries: {entries_max} are the most in one request"
        )


def cut(request: Struct, paths: tuple[Path, ...]) -> tuple[str, list[list[Any]]]:
    """The name of the list that is long, and its portions."""
    field, *inner = max(paths, key=lambda path: len(getattr(request, path[0]) or ()))
    pieces = _pieces(getattr(request, field) or [], tuple(inner))
    return field, [portion for portion, _ in _grouped(pieces)] or [[]]


async def in_portions(
    handle: Callable[[Any], Any], request: Any, field: str, portions: list[list[Any]]
) -> Any:
    """The answer to all of it, or the first that refuses a portion as a whole."""
    whole: Any = None
    for entries in portions:
        part = copy(request)
        setattr(part, field, entries)
        answer = await _answer(handle(part))
        if getattr(answer, "error_code", 0):
            return answer
        if whole is None:
            whole = answer
        else:
            _join(whole, answer)
        await asyncio.sleep(0)
    return whole


def _count(value: object) -> int:
    if isinstance(value, list):
        is_plain = not value or not isinstance(value[0], Struct)
        return len(value) + (0 if is_plain else sum(_count(entry) for entry in value))
    if isinstance(value, Struct):
        return sum(_count(getattr(value, name)) for name in value.__slots__)
    return 0


# -- cutting ------------------------------------------------------------------------------------------------


def _pieces(entries: list[Any], path: Path) -> Iterator[tuple[Any, int]]:
    """Each entry with its weight; one with a long list of its own comes in pieces."""
    for entry in _once(entries, path):
        parts = getattr(entry, path[0]) if path else None
        if not parts:
            yield entry, 1
            continue
        for portion, weight in _grouped(_pieces(parts, path[1:])):
            piece = copy(entry)
            setattr(piece, path[0], portion)
            yield piece, weight + 1


def _once(entries: list[Any], path: Path) -> list[Any]:
    if not isinstance(entries[0] if entries else None, Struct):
        return list(dict.fromkeys(entries))
    found: dict[object, Any] = {}
    for entry in entries:
        first = found.setdefault(_own(entry), entry)
        if first is not entry and path and isinstance(parts := getattr(first, path[0]), list):
            parts.extend(getattr(entry, path[0]))
    return list(found.values())


def _own(entry: Struct) -> tuple[object, ...]:
    """What it says besides its lists."""
    return tuple(value for name in entry.__slots__ if not isinstance(value := getattr(entry, name), list))


def _grouped(pieces: Iterator[tuple[Any, int]]) -> Iterator[tuple[list[Any], int]]:
    portion: list[Any] = []
    size = 0
    for piece, weight in pieces:
        if portion and size + weight > TURN_ITEMS_MAX:
            yield portion, size
            portion, size = [], 0
        portion.append(piece)
        size += weight
    if portion:
        yield portion, size


# -- answering ----------------------------------------------------------------------------------------------


async def _answer(response: Any) -> Any:
    if isinstance(response, Later):
        answered = asyncio.get_running_loop().create_future()
        response.subscribe(lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered
    return await response if inspect.isawaitable(response) else response


def _join(whole: Struct, more: Struct) -> None:
    for name in whole.__slots__:
        known, added = getattr(whole, name), getattr(more, name)
        if isinstance(known, list) and added:
            if known and _is_cut(known[-1], added[0]):
                _join(known[-1], added[0])
                added = added[1:]
            known.extend(added)


def _is_cut(entry: object, rest: object) -> bool:
    """Whether both are the answer to one entry that was too long."""
    if not isinstance(entry, Struct) or not isinstance(rest, Struct):
        return False
    own = _own(entry)
    return len(own) < len(entry.__slots__) and own == _own(rest)
