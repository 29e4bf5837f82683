"""Keys and values to bytes and back.

Keys: bytes as they are, text as UTF-8, whole numbers as eight bytes, big-endian and signed (Java's `Long`
serialiser, so that a number has the same partition in every language), None for no key.

Values: `auto` (bytes as they are, text as UTF-8, everything else as JSON), `json`, `str`, `bytes`, or a function
of one's own. None is never serialised: it is the tombstone that deletes a key from a compacted topic.
"""

import json
from collections.abc import Callable
from typing import Any, Literal

from penstock.client.errors import ClientError

Key = str | bytes | int | None
Serializer = Literal["auto", "json", "str", "bytes"] | Callable[[Any], bytes]
Deserializer = Literal["bytes", "json", "str"] | Callable[[bytes], Any]

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class SerializationError(ClientError):
    """A key or value that cannot become bytes, or bytes that cannot become a value."""


def encode_key(key: Key) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"a key is no text ({error.reason}): send it as bytes") from error
    if isinstance(key, int) and not isinstance(key, bool):
        try:
            return key.to_bytes(8, "big", signed=True)
        except OverflowError:
            raise SerializationError(f"key {key} does not fit into 64 bits: send it as text") from None
    raise SerializationError(f"a key of type {type(key).__name__} cannot be sent: use str, bytes or int")


def decode_int_key(key: bytes) -> int:
    """What `encode_key` made of a number."""
    if len(key) != 8:
        raise SerializationError(f"a key of {len(key)} bytes was not a number: those have 8")
    return int.from_bytes(key, "big", signed=True)


def _json(value: Any) -> bytes:
    try:
        return _dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(value, f"JSON cannot express it ({error})") from error


def _auto(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return _json(value)


def _str(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _refused(value, "serializer='str' takes text")
    return _utf8(value)


def _utf8(text: str) -> bytes:
    """Not every `str` is text: half of a surrogate pair, from a file name say, has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _refused(text, f"UTF-8 cannot express it ({error.reason})") from error


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _refused(value, "serializer='bytes' takes bytes")
    return bytes(value)


def _refused(value: Any, why: str) -> SerializationError:
    return SerializationError(
        f"a value of type {type(value).__name__} cannot be sent: {why}; send bytes, or give Producer a serializer"
    )


_SERIALIZERS: dict[str, Callable[[Any], bytes]] = {
    "auto": _auto,
    "json": _json,
    "str": _str,
    "bytes": _bytes,
}


def serializer_for(chosen: Serializer) -> Callable[[Any], bytes]:
    if callable(chosen):
        return _guarded(chosen)
    if chosen not in _SERIALIZERS:
        raise ClientError(f"serializer={chosen!r} is not known: choose auto, json, str, bytes or a function")
    return _SERIALIZERS[chosen]


def _guarded(own: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def serialize(value: Any) -> bytes:
        try:
            data = own(value)
        except Exception as error:
            raise _refused(value, f"the serializer raised {type(error).__name__}: {error}") from error
        if not isinstance(data, bytes):
            raise _refused(value, f"the serializer gave {type(data).__name__}, not bytes")
        return data

    return serialize


def deserializer_for(chosen: Deserializer) -> Callable[[bytes], Any] | None:
    """None stands for bytes as they are: the quickest way is not to call anything."""
    if callable(chosen):
        return chosen
    if chosen == "bytes":
        return None
    if chosen == "str":
        return bytes.decode
    if chosen == "json":
        return json.loads
    raise ClientError(f"deserializer={chosen!r} is not known: choose bytes, str, json or a function")
