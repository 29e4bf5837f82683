"""What every Kafka codec is made of: the declared errors, the base of message classes, bounded reads and writes.

Layouts (big-endian; "compact" ones belong to flexible versions):

    string           int16 length, UTF-8            compact: uvarint length + 1, UTF-8     null: -1 / 0
    bytes, records   int32 length, bytes            compact: uvarint length + 1, bytes     null: -1 / 0
    array            int32 count, elements          compact: uvarint count + 1, elements   null: -1 / 0
    nullable struct  int8: negative is null, else the struct follows
    tagged fields    uvarint count, then per field uvarint tag, uvarint size, that many bytes

Read as Kafka reads them: every negative length is null, and what is no UTF-8 becomes U+FFFD.

Reads take `(buffer, position)` and give `(value, position behind it)`. A length or count is held against the
bytes that are left before anything is made from it, so a few bytes cannot ask for gigabytes. What runs off
the end of the buffer shows as one of `MALFORMED`, which the entry points of each codec turn into
`DecodeError`: one `try` per message costs nothing, a check per field would.
"""

from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812  (struct's own name says too little)
from struct import pack, unpack_from
from typing import Any, Never, TypeVar

from penstock.core.errors import PenstockError, ProtocolError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

ZERO_UUID = bytes(16)
# Above every version: the `FLEXIBLE_SINCE` of messages that have no flexible version.
NEVER_FLEXIBLE = 1 << 15
# Kafka bounds strings to an int16 in compact form too.
STRING_BYTES_MAX = (1 << 15) - 1
# Stands for "not given" where a fresh list or struct is the default.
ABSENT: Any = object()


class DecodeError(ProtocolError):
    """Bytes that are not the message they should be."""


class EncodeError(PenstockError):
    """A value that does not fit the field it is in: a bug in the code that built the message."""


# What reads and writes may raise besides the two above, for the entry points to turn into them.
MALFORMED = (LayoutError, IndexError)
UNENCODABLE = (LayoutError, AttributeError, TypeError, ValueError)

_INT16 = Layout(">h")
_INT32 = Layout(">i")


class Struct:
    """Base of all generated message classes: compared and shown by their slots."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({fields})"


def refuse_version(name: str, version: int, lowest: int, highest: int) -> Never:
    raise DecodeError(f"{name} has versions {lowest} to {highest}, not {version}")


def _too_long(what: str, length: int, left: int) -> Never:
    raise DecodeError(f"{what} of {length} with {left} bytes left")


def _null(what: str) -> Never:
    raise DecodeError(f"null for {what} that cannot be null")


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + 1
    raise DecodeError("a varint over 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_string(buffer: Buffer, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    position += 2
    if length < 0:
        _null("a string")
    end = position + length
    if end > len(buffer):
        _too_long("a string", length, len(buffer) - position)
    return str(buffer[position:end], "utf-8", "replace"), end


def read_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    if length < 0:
        return None, position + 2
    return read_string(buffer, position)


def read_compact_string(buffer: Buffer, position: int) -> tuple[str, int]:
    length = buffer[position]
    end = position + length
    if 0 < length < 0x80 and end <= len(buffer):  # nearly all are that short: one look, no calls
        return str(buffer[position + 1 : end], "utf-8", "replace"), end
    length, position = read_uvarint(buffer, position)
    if length == 0:
        _null("a string")
    end = position + length - 1
    if end > len(buffer) or length > STRING_BYTES_MAX + 1:
        _too_long("a string", length - 1, len(buffer) - position)
    return str(buffer[position:end], "utf-8", "replace"), end


def read_compact_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    if buffer[position] == 0:
        return None, position + 1
    return read_compact_string(buffer, position)


def write_string(out: bytearray, value: str) -> None:
    data = value.encode()
    out += _INT16.pack(len(data))
    out += data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    data = value.encode()
    length = len(data)
    if length < 127:
        out.append(length + 1)
    elif length > STRING_BYTES_MAX:
        raise EncodeError(f"a string of {length} bytes")
    else:
        write_uvarint(out, length + 1)
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def _read_span(buffer: Buffer, position: int) -> tuple[int, int]:
    """Where the bytes begin and end; the end is -1 for null."""
    (length,) = _INT32.unpack_from(buffer, position)
    position += 4
    if length < 0:
        return position, -1
    if length > len(buffer) - position:
        _too_long("bytes", length, len(buffer) - position)
    return position, position + length


def _read_compact_span(buffer: Buffer, position: int) -> tuple[int, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return position, -1
    end = position + length - 1
    if end > len(buffer):
        _too_long("bytes", length - 1, len(buffer) - position)
    return position, end


def read_bytes(buffer: Buffer, position: int) -> tuple[bytes, int]:
    start, end = _read_span(buffer, position)
    if end < 0:
        _null("bytes")
    return bytes(buffer[start:end]), end


def read_nullable_bytes(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
    start, end = _read_span(buffer, position)
    return (None, start) if end < 0 else (bytes(buffer[start:end]), end)


def read_compact_bytes(buffer: Buffer, position: int) -> tuple[bytes, int]:
    start, end = _read_compact_span(buffer, position)
    if end < 0:
        _null("bytes")
    return bytes(buffer[start:end]), end


def read_compact_nullable_bytes(buffer: Buffer, position: int) -> tuple[bytes | None, int]:
    start, end = _read_compact_span(buffer, position)
    return (None, start) if end < 0 else (bytes(buffer[start:end]), end)


# Records stay where they are: the view is good for as long as the buffer under it is.


def read_records(buffer: Buffer, position: int) -> tuple[memoryview, int]:
    start, end = _read_span(buffer, position)
    if end < 0:
        _null("records")
    return memoryview(buffer)[start:end], end


def read_nullable_records(buffer: Buffer, position: int) -> tuple[memoryview | None, int]:
    start, end = _read_span(buffer, position)
    return (None, start) if end < 0 else (memoryview(buffer)[start:end], end)


def read_compact_records(buffer: Buffer, position: int) -> tuple[memoryview, int]:
    start, end = _read_compact_span(buffer, position)
    if end < 0:
        _null("records")
    return memoryview(buffer)[start:end], end


def read_compact_nullable_records(buffer: Buffer, position: int) -> tuple[memoryview | None, int]:
    start, end = _read_compact_span(buffer, position)
    return (None, start) if end < 0 else (memoryview(buffer)[start:end], end)


def write_bytes(out: bytearray, value: Buffer) -> None:
    out += _INT32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: Buffer) -> None:
    write_uvarint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def read_nullable_count(buffer: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    """The count of an array, -1 for null, that the bytes left can hold."""
    (count,) = _INT32.unpack_from(buffer, position)
    position += 4
    if count < 0:
        return -1, position
    if count * element_bytes_min > len(buffer) - position:
        _too_long("an array", count, len(buffer) - position)
    return count, position


def read_count(buffer: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    count, position = read_nullable_count(buffer, position, element_bytes_min)
    if count < 0:
        _null("an array")
    return count, position


def read_compact_nullable_count(buffer: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    count -= 1
    if count * element_bytes_min > len(buffer) - position:
        _too_long("an array", count, len(buffer) - position)
    return count, position


def read_compact_count(buffer: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    count, position = read_compact_nullable_count(buffer, position, element_bytes_min)
    if count < 0:
        _null("an array")
    return count, position


def read_numbers(buffer: Buffer, position: int, count: int, code: str, size: int) -> tuple[list[int], int]:
    """`count` integers of `size` bytes each; the count has been checked."""
    return list(unpack_from(f">{count}{code}", buffer, position)), position + count * size


def read_uuids(buffer: Buffer, position: int, count: int) -> tuple[list[bytes], int]:
    end = position + 16 * count
    return [bytes(buffer[start : start + 16]) for start in range(position, end, 16)], end


def read_strings(buffer: Buffer, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        string, position = read_string(buffer, position)
        strings.append(string)
    return strings, position


def read_compact_strings(buffer: Buffer, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        string, position = read_compact_string(buffer, position)
        strings.append(string)
    return strings, position


def write_count(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def write_compact_count(out: bytearray, count: int) -> None:
    if count < 127:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


def write_numbers(out: bytearray, values: list[int], code: str) -> None:
    out += pack(f">{len(values)}{code}", *values)


def write_uuids(out: bytearray, values: list[bytes]) -> None:
    for value in values:
        out += checked_uuid(value)


def write_strings(out: bytearray, values: list[str]) -> None:
    for value in values:
        write_string(out, value)


def write_compact_strings(out: bytearray, values: list[str]) -> None:
    for value in values:
        write_compact_string(out, value)


def checked_uuid(value: bytes) -> bytes:
    if len(value) != 16:  # struct would pad or cut it without a word
        raise EncodeError(f"a UUID of {len(value)} bytes")
    return value


def present(value: T | None) -> T:
    if value is None:
        raise EncodeError("null in a version whose field cannot be null")
    return value


def read_tag(buffer: Buffer, position: int) -> tuple[int, int, int]:
    """A tagged field's tag, and where its value begins and ends."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        _too_long("a tagged field", size, len(buffer) - position)
    return tag, position, position + size


def check_tag_end(position: int, end: int) -> None:
    if position != end:
        raise DecodeError("a tagged field that disagrees with its size")


def skip_tags(buffer: Buffer, position: int) -> int:
    """Step over a section in which no tag is known."""
    if buffer[position] == 0:
        return position + 1
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, _, position = read_tag(buffer, position)
    return position


def write_tag(out: bytearray, tag: int, value: bytearray) -> None:
    write_uvarint(out, tag)
    write_uvarint(out, len(value))
    out += value
