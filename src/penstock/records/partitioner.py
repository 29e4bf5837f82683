"""Which partition a key belongs to: the 32-bit murmur2 of Kafka's Java client, bit for bit.

Every producer of a topic must agree on this, or records of one key lose their order.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Unsigned; Java prints the same 32 bits as a signed number."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ (value >> 13)) * _MULTIPLIER & _MASK
    return value ^ (value >> 15)


def partition_for(key: bytes, count: int) -> int:
    """The partition of `key` among `count`. Java drops the sign bit rather than taking the absolute value."""
    return (murmur2(key) & 0x7FFFFFFF) % count
