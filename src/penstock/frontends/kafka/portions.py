"""A large request, a portion at a time: others get their turn in between.

Where an API answers each entry of a list apart, it says which list that is: `portions=(("topics", "partitions"),)` are
the entries of `topics`, and in each of them those of `partitions`; one path for each list that it may come with. Its
handler is called with a hundred entries or so, and what it answers is put together again. In a large request, what is
named more than once is carried out once.

Much happens between two portions: a group is loaded, a topic deleted. An entry that is cut must be answered from one
state all the same, or it would be told twice, with an error and without. So either its answer says nothing of it but
its name, or what is told is read before the first portion (`Api.snapshot`).
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

from penstock.core.errors import ProtocolError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.frontends.kafka.pace import Pace
from penstock.frontends.kafka.registry import Api, Call
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.primitives import Struct

Path = tuple[str, ...]
InThread = Callable[..., Awaitable[Any]]


class Portion(NamedTuple):
    entries: list[Any]
    weight: int
    continued: int  # at how many levels of lists its first entry is the rest of the one before


class _Piece(NamedTuple):
    entry: Any
    weight: int
    continued: int = 0


def check_size(request: Struct, entries_max: int) -> None:
    entries = _count(request)
    if entries > entries_max:
        raise ProtocolError(
            f"{type(request).__name__} with {entries} entries: {entries_max} are the most in one request"
        )


def cut(request: Struct, paths: tuple[Path, ...]) -> tuple[str, list[Portion]]:
    """The name of the list that is long, and its portions."""
    field, *inner = max(paths, key=lambda path: len(getattr(request, path[0]) or ()))
    pieces = _pieces(getattr(request, field) or [], tuple(inner))
    return field, list(_grouped(pieces)) or [Portion([], 0, 0)]


async def in_portions(
    api: Api, services: Services, request: Any, call: Call, in_thread: InThread, pace: Pace
) -> Any:
    """The answer to all of it, or the first that refuses a portion as a whole."""
    handler = api.handler
    assert handler is not None
    answer_to: Callable[[Any], Any] = lambda part: handler(services, part, call)  # noqa: E731 - may be another
    if api.snapshot is not None:
        answer_to = await api.snapshot(services, request, call, pace)
    if not api.portions:  # it gives way to others by itself
        return await _awaited(answer_to(request), pace)
    field, portions = await in_thread(cut, request, api.portions)
    whole: Any = None
    for portion in portions:
        part = copy(request)
        setattr(part, field, portion.entries)
        answer = await _awaited(answer_to(part), pace)
        if getattr(answer, "error_code", 0):
            return answer
        if whole is None:
            whole = answer
        else:
            _join(whole, answer, portion.continued)
        await pace.give_way()
    return whole


def _count(value: object) -> int:
    if isinstance(value, list):
        is_plain = not value or not isinstance(value[0], Struct)
        return len(value) + (0 if is_plain else sum(_count(entry) for entry in value))
    if isinstance(value, Struct):
        return sum(_count(getattr(value, name)) for name in value.__slots__)
    return 0


# -- cutting ------------------------------------------------------------------------------------------------


def _pieces(entries: list[Any], path: Path) -> Iterator[_Piece]:
    """Each entry with its weight; one with a long list of its own comes in pieces."""
    for entry in _once(entries, path):
        parts = getattr(entry, path[0]) if path else None
        if not parts:
            yield _Piece(entry, 1 + _count(entry))
            continue
        for number, portion in enumerate(_grouped(_pieces(parts, path[1:]))):
            piece = copy(entry)
            setattr(piece, path[0], portion.entries)
            yield _Piece(piece, portion.weight + 1, portion.continued + 1 if number else 0)


def _once(entries: list[Any], path: Path) -> list[Any]:
    if not isinstance(entries[0] if entries else None, Struct):
        return list(dict.fromkeys(entries))
    found: dict[object, Any] = {}
    for entry in entries:
        first = found.setdefault(_own(entry) if path else _all(entry), entry)
        if first is entry or not path or getattr(first, path[0]) is None:
            continue
        parts = getattr(entry, path[0])
        if parts is None:  # that is everything
            setattr(first, path[0], None)
        else:
            getattr(first, path[0]).extend(parts)
    return list(found.values())


def _own(entry: Struct) -> tuple[object, ...]:
    """What it says besides its lists."""
    return tuple(value for name in entry.__slots__ if not isinstance(value := getattr(entry, name), list))


def _all(entry: Struct) -> tuple[object, ...]:
    values = (getattr(entry, name) for name in entry.__slots__)
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _grouped(pieces: Iterator[_Piece]) -> Iterator[Portion]:
    entries: list[Any] = []
    size = continued = 0
    for piece in pieces:
        if entries and size + piece.weight > TURN_ITEMS_MAX:
            yield Portion(entries, size, continued)
            entries, size = [], 0
        if not entries:
            continued = piece.continued
        entries.append(piece.entry)
        size += piece.weight
    if entries:
        yield Portion(entries, size, continued)


# -- answering ----------------------------------------------------------------------------------------------


async def _awaited(response: Any, pace: Pace) -> Any:
    if isinstance(response, PendingReply):
        return await pace.wait(response)
    return await response if inspect.isawaitable(response) else response


def _join(whole: Struct, more: Struct, continued: int) -> None:
    for name in whole.__slots__:
        known, added = getattr(whole, name), getattr(more, name)
        if isinstance(known, list) and added:
            if continued:
                # Else an entry would be told twice, of two states: clients forget what they read of one.
                assert [_own(entry) for entry in known[-1:]] == [_own(added[0])], (
                    f"{added[0]} goes on differently"
                )
                _join(known[-1], added[0], continued - 1)
                added = added[1:]
            known.extend(added)
