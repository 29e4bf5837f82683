"""For every API and every list in its requests: a request with as many small entries as its frame may hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from penstock.core.limits import PLAIN_REQUEST_BYTES_MAX
from penstock.frontends.kafka.apis import load_handlers
from penstock.frontends.kafka.registry import REGISTRY, TRANSACTION_APIS, Api
from penstock.wire.kafka.generated.index import APIS
from penstock.wire.kafka.messages import request_module
from penstock.wire.kafka.primitives import EncodeError, Struct

# What numbers of entries are taken by: the widest that the field can hold.
_NUMBERS = (1 << 30, 30_000, 100)
_PROBED = (1000, 40_000)


@dataclass(frozen=True)
class Crowd:
    api: Api
    path: tuple[str, ...]  # of the list that is long

    @property
    def name(self) -> str:
        return f"{request_of(self.api.key).__name__}-{'.'.join(self.path)}"

    def request(self, entries_max: int) -> tuple[int, Struct] | None:
        """The version and the request; None where the list is in no version that is served."""
        for numbers in _NUMBERS:
            for version in range(self.api.max_version, self.api.min_version - 1, -1):
                try:
                    small, large = (self._size(version, number, numbers) for number in _PROBED)
                    if large > small:
                        each = (large - small) / (_PROBED[1] - _PROBED[0])
                        entries = min(entries_max, int(PLAIN_REQUEST_BYTES_MAX * 0.9 / each))
                        return version, _make(request_of(self.api.key), 0, self.path, entries, numbers)
                except EncodeError:
                    continue
        return None

    def _size(self, version: int, entries: int, numbers: int) -> int:
        request = _make(request_of(self.api.key), 0, self.path, entries, numbers)
        return len(self.api.codec.encode_request(request, version))


def crowds() -> list[Crowd]:
    load_handlers()
    return [
        Crowd(api, path)
        for key, api in sorted(REGISTRY.items())
        # Brokers ask for so much and no more.
        if api.handler is not None and not api.internal and key not in TRANSACTION_APIS
        for path in _lists(request_of(key))
    ]


def request_of(key: int) -> type:
    name = "".join(part.capitalize() for part in APIS[key][0].split("_"))
    found: type = getattr(request_module(key), f"{name}Request")
    return found


@cache
def fields_of(cls: type) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(cls.__init__).items() if name != "return"}


def entry_of(kind: Any) -> Any:
    """Of a list, or of one that may be null; None of what is no list."""
    for alternative in (kind,) if get_origin(kind) is list else get_args(kind):
        if get_origin(alternative) is list:
            return get_args(alternative)[0]
    return None


def _lists(cls: type) -> Iterator[tuple[str, ...]]:
    for name, kind in fields_of(cls).items():
        entry = entry_of(kind)
        if entry is not None:
            yield (name,)
            if issubclass(entry, Struct):
                yield from ((name, *path) for path in _lists(entry))


def _make(cls: type, number: int, path: tuple[str, ...], entries: int, numbers: int) -> Any:
    """With so many entries in the list at `path`, one in each list on the way there, and none in others."""
    fields: dict[str, Any] = {}
    for name, kind in fields_of(cls).items():
        entry = entry_of(kind)
        if path and path[0] == name:
            fields[name] = [
                _make(entry, i, path[1:], entries, numbers)
                if issubclass(entry, Struct)
                else _value(entry, i, numbers)
                for i in range(1 if path[1:] else entries)
            ]
        else:
            fields[name] = [] if entry is not None else _value(kind, number, numbers)
    return cls(**fields)


def _value(kind: Any, number: int, numbers: int) -> Any:
    kinds = get_args(kind) or (kind,)
    if str in kinds:
        return f"x{number:x}"
    if bytes in kinds:
        return number.to_bytes(16, "big")
    if bool in kinds:
        return False
    if int in kinds:
        return number % numbers
    return 0.0 if float in kinds else None
