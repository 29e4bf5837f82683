"""Variable-length integers: plain (unsigned LEB128) for the protocol, zigzag for records."""

from penstock.core.errors import PenstockError

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
_ONE_BYTE = [bytes([value]) for value in range(0x80)]  # nearly all that are written


class VarintError(PenstockError):
    """A varint that runs past the end or over its size."""


def read_uvarint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value at `position` and the position behind it."""
    value = shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                raise VarintError("a varint longer than ten bytes")
    except IndexError:
        raise VarintError("the bytes end inside a varint") from None


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Zigzag: small negative numbers stay short."""
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def encode_uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    if 0 <= value < _SHORT_MAX:
        return _SHORT[value]
    return encode_uvarint((value << 1) ^ (value >> 63))


# Lengths of most keys, values and records that the broker writes.
_SHORT_MAX = 0x200
_SHORT = [encode_uvarint(value << 1) for value in range(_SHORT_MAX)]
