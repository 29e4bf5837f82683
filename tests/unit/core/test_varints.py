"""What is encoded is read back, on both sides of every length that is encoded in a way of its own."""

import pytest

from penstock.core.varints import encode_uvarint, encode_varint, read_uvarint, read_varint

EDGES = [0, *(1 << bits for bits in (1, 5, 6, 7, 8, 9, 10, 13, 14, 31, 32))]


@pytest.mark.parametrize("value", [*range(0x40 * 9), *(edge + by for edge in EDGES for by in (-1, 0, 1))])
def test_what_is_encoded_is_read_back(value: int) -> None:
    for number in (value, -value):
        encoded = encode_varint(number)
        assert read_varint(encoded, 0) == (number, len(encoded))
        assert encoded == encode_uvarint(2 * number if number >= 0 else -2 * number - 1)
    if value >= 0:
        plain = encode_uvarint(value)
        assert read_uvarint(plain, 0) == (value, len(plain))
