"""Which partition of `__consumer_offsets` keeps a group: Java's `String.hashCode`, so that Kafka's tools agree."""

from functools import cache, lru_cache

_INT_MIN = -(2**31)
# Group names whose hash is remembered: every request of a group asks for it.
_REMEMBERED_MAX = 10_000
_CHARS_MAX = 300
_LANES_MAX = 32768 // 4  # a string of the protocol has no more bytes, so no more units


def java_hash(text: str) -> int:
    """Over UTF-16 code units, as a signed 32-bit number: u0·31^(n-1) + u1·31^(n-2) + … + un-1.

    A step per character would hold up everybody for milliseconds where a client sends a name of 32 KB. So the units lie
    side by side in one large number, in lanes of 64 bits. First the four units of each lane become one 32-bit value;
    then the upper half of the lanes, times a power of 31, is added to the lower half until one is left.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    count = -(-len(units) // 8)
    value = int.from_bytes(units, "big")
    unit = _in_each_lane(0xFFFF, count)
    value = (
        (value >> 48 & unit) * 31**3
        + (value >> 32 & unit) * 31**2
        + (value >> 16 & unit) * 31
        + (value & unit)
    )
    while count > 1:
        half = count // 2
        upper, lower = value >> 64 * half, value & ((1 << 64 * half) - 1)
        count -= half
        value = upper * pow(31, 4 * half, 1 << 32) + lower & _in_each_lane(0xFFFFFFFF, count)
    return value - 2**32 if value >= 2**31 else value


def _in_each_lane(bits: int, count: int) -> int:
    if count > _LANES_MAX:
        return int.from_bytes(bits.to_bytes(8, "big") * count, "big")
    return _in_all_lanes(bits) >> 64 * (_LANES_MAX - count)


@cache
def _in_all_lanes(bits: int) -> int:
    return int.from_bytes(bits.to_bytes(8, "big") * _LANES_MAX, "big")


def partition_of(group_id: str, partitions: int) -> int:
    # Very long names are not remembered, whoever sends many of them.
    return (
        _remembered(group_id, partitions) if len(group_id) <= _CHARS_MAX else _partition(group_id, partitions)
    )


def _partition(group_id: str, partitions: int) -> int:
    value = java_hash(group_id)
    return (0 if value == _INT_MIN else abs(value)) % partitions


_remembered = lru_cache(_REMEMBERED_MAX)(_partition)
